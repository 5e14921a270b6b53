//! Hang-ups of another tenant, over sockets: the share of patient callers that are served meanwhile, and later.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::{Caller, Gateway, Outcome, SERVICE, SLOTS, backend, call, client};

/// The load of the patient callers.
const HONEST: f64 = 0.75;
const PATIENT: Duration = Duration::from_secs(20);
/// When hang-ups begin and end.
const ATTACK: (u64, u64) = (10, 20);
/// The callers that count as later: from ten seconds after the end on.
const LATER: (u64, u64) = (30, 40);

/// The shares of patient callers that were served.
pub(super) struct Served {
    during: f64,
    later: f64,
}

impl std::fmt::Display for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { during, later } = self;
        write!(f, "{:16.1}  {:11.1}", during * 100.0, later * 100.0)
    }
}

/// Sends so many requests per second that are given up after that time.
pub(super) async fn measure(
    path: &Path,
    hang_ups: f64,
    after: Duration,
    seed: u64,
) -> Result<Served, Box<dyn Error>> {
    let gateway = Gateway::start(path, "", backend().await?)?;
    let http = client();
    let mut random = fastrand::Rng::with_seed(seed);
    let honest = HONEST * SLOTS as f64 / SERVICE.as_secs_f64();
    let (mut calls, begin, mut at) = (JoinSet::new(), Instant::now(), 0.0);
    while at < LATER.1 as f64 {
        let is_attack = (ATTACK.0..ATTACK.1).contains(&(at as u64));
        let rate = honest + if is_attack { hang_ups } else { 0.0 };
        at += -(1.0 - random.f64()).ln() / rate;
        let is_honest = random.f64() * rate < honest;
        let caller = Caller {
            patience: if is_honest { PATIENT } else { after },
            ..Caller::default()
        };
        let (http, url) = (http.clone(), gateway.url.clone());
        sleep_until(begin + Duration::from_secs_f64(at)).await;
        calls.spawn(async move {
            let (outcome, _) = call(&http, &url, &caller).await;
            (at as u64, is_honest, outcome)
        });
    }
    let calls = calls.join_all().await;
    let served = |(from, to): (u64, u64)| {
        let honest = calls
            .iter()
            .filter(|&&(at, is_honest, _)| is_honest && (from..to).contains(&at));
        let outcomes: Vec<Outcome> = honest.map(|&(.., outcome)| outcome).collect();
        let in_time = outcomes.iter().filter(|&&it| it == Outcome::InTime).count();
        in_time as f64 / outcomes.len() as f64
    };
    Ok(Served {
        during: served(ATTACK),
        later: served(LATER),
    })
}
