//! Checks that know only the endpoints of the start let those that come later go unchecked, and ask on at
//! addresses that are long somebody else's.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::get::{CheckError, Getter};
use super::rounds::rounds;
use crate::admit::PoolId;
use crate::route::forward::Connector;
use crate::route::{EndpointRef, RouterHandle};

/// Asks the endpoints of a router whether they are well, for as long as it lives. Made by
/// [`Forward::checks`](super::super::Forward::checks).
///
/// Those are asked that have a [`HealthCheck`](super::HealthCheck). The first eight are asked at once, in the registry's
/// order; the first checks of the others are spread over their interval. When the endpoints
/// are changed, those that come are asked from then on, those that go no more; an endpoint that is configured
/// as before, as far as checks go, is not asked anew. One that loses its check is taken to be well.
///
/// Dropping it stops all checks. What they said last of each endpoint stays.
#[must_use = "dropping it stops the checks"]
pub struct HealthChecks {
    handle: RouterHandle,
    decided: Decided,
    keeper: JoinHandle<()>,
}

/// The endpoints that have had a result, as they were configured then.
type Decided = Arc<watch::Sender<HashMap<PoolId, EndpointRef>>>;

impl HealthChecks {
    pub(in crate::route) fn start(connector: Connector, handle: RouterHandle) -> Self {
        let decided = Decided::default();
        let keeper = Keeper {
            getter: Getter::new(connector),
            handle: handle.clone(),
            decided: Arc::clone(&decided),
            running: HashMap::new(),
        };
        // Before the endpoints are looked at: no change is missed.
        let changed = handle.0.changed.subscribe();
        Self {
            handle,
            decided,
            keeper: tokio::spawn(keeper.keep(changed)),
        }
    }

    /// Resolves when each endpoint that is to be checked now has had its first result, or is to be checked no
    /// more. With more than eight of them, that takes about an interval.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped and called again at any time.
    pub async fn first_results(&self) {
        let endpoints = self.handle.endpoints();
        let mut awaited: Vec<_> = endpoints.iter().filter(is_checked).cloned().collect();
        let has_come = |decided: &HashMap<PoolId, EndpointRef>| {
            let endpoints = self.handle.endpoints();
            awaited.retain(|awaited| {
                let is_it = |other: &EndpointRef| is_same_check(awaited, other);
                !decided.get(&awaited.pool()).is_some_and(is_it) && endpoints.iter().any(is_it)
            });
            awaited.is_empty()
        };
        _ = self.decided.subscribe().wait_for(has_come).await;
    }
}

impl Drop for HealthChecks {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl fmt::Debug for HealthChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthChecks").finish_non_exhaustive()
    }
}

/// Sees to it that those are checked that are to be.
struct Keeper {
    getter: Getter,
    handle: RouterHandle,
    decided: Decided,
    running: HashMap<PoolId, Running>,
}

impl Keeper {
    async fn keep(mut self, mut changed: watch::Receiver<()>) {
        loop {
            self.follow().await;
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Stops and starts checks until they are those of the endpoints that there are.
    async fn follow(&mut self) {
        let endpoints = self.handle.endpoints();
        let checked = endpoints.iter().filter(is_checked);
        let checked: HashMap<PoolId, &EndpointRef> = checked
            .map(|endpoint| (endpoint.pool(), endpoint))
            .collect();
        let outdated: Vec<Running> = self
            .running
            .extract_if(|pool, running| {
                let now = checked.get(pool);
                !now.is_some_and(|now| is_same_check(&running.endpoint, now))
            })
            .map(|(_, running)| running)
            .collect();
        for running in outdated {
            let endpoint = running.stop().await;
            self.decided
                .send_modify(|decided| _ = decided.remove(&endpoint.pool()));
            match endpoints.iter().find(|now| now.is_same(&endpoint)) {
                Some(now) if is_checked(&now) => {} // its next check decides
                Some(now) => {
                    let shift = now.live().availability.forget_checks();
                    self.handle.0.shifted(now, shift);
                }
                None => self.handle.0.forget_checks(&endpoint),
            }
        }
        // In the registry's order, so that it is known which is checked when.
        let is_new = |endpoint: &&EndpointRef| !self.running.contains_key(&endpoint.pool());
        let new: Vec<&EndpointRef> = endpoints.iter().filter(is_checked).filter(is_new).collect();
        for (nth, endpoint) in new.iter().enumerate() {
            let check = endpoint.config().health.as_ref();
            let pause = check.map(|check| first_pause(nth, new.len(), check.interval));
            let task = tokio::spawn(run(
                pause.unwrap_or_default(),
                self.getter.clone(),
                self.handle.clone(),
                Arc::clone(&self.decided),
                (*endpoint).clone(),
            ));
            let endpoint = (*endpoint).clone();
            let running = Running { endpoint, task };
            self.running.insert(running.endpoint.pool(), running);
        }
    }
}

/// The checks of one endpoint.
struct Running {
    endpoint: EndpointRef,
    task: JoinHandle<()>,
}

impl Running {
    /// Ends the checks. Nothing is heard of them afterwards.
    async fn stop(mut self) -> EndpointRef {
        self.task.abort();
        _ = (&mut self.task).await;
        self.endpoint.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// So many endpoints are asked at once when their checks begin.
const AT_ONCE: usize = 8;

/// How long the `nth` of `count` endpoints whose checks begin together, counted from 0, waits for its first: the first
/// few not at all, the others spread over the interval.
fn first_pause(nth: usize, count: usize, interval: Duration) -> Duration {
    let others = count.saturating_sub(AT_ONCE);
    match nth.checked_sub(AT_ONCE) {
        None => Duration::ZERO,
        Some(nth) => interval.mul_f64((nth + 1) as f64 / (others + 1) as f64),
    }
}

async fn run(
    pause: Duration,
    getter: Getter,
    handle: RouterHandle,
    decided: Decided,
    endpoint: EndpointRef,
) {
    let Some(check) = &endpoint.config().health else {
        return;
    };
    sleep(pause).await;
    let mut first = true;
    let get = || getter.get(&endpoint, &check.path);
    let tell = |up: Option<bool>, result: Result<(), CheckError>| {
        let name = endpoint.name();
        match (result, up) {
            (Err(error), _) if error.is_our_own() => {
                tracing::warn!(endpoint = name, %error, "no check of the endpoint could be made");
            }
            (Err(error), Some(_)) => {
                tracing::warn!(endpoint = name, %error, "endpoint fails its checks");
            }
            (Err(error), None) => tracing::debug!(endpoint = name, %error, "check failed"),
            (Ok(()), _) => {}
        }
        if let Some(up) = up {
            handle.set_healthy(&endpoint, up);
        }
        if std::mem::take(&mut first) {
            decided.send_modify(|decided| {
                decided.insert(endpoint.pool(), endpoint.clone());
            });
        }
    };
    let signs = || endpoint.live().signs.count();
    rounds(check, get, signs, tell).await;
}

fn is_checked(endpoint: &&EndpointRef) -> bool {
    endpoint.config().health.is_some()
}

/// Whether both are one endpoint, and are asked the same in the same way.
fn is_same_check(one: &EndpointRef, other: &EndpointRef) -> bool {
    one.is_same(other)
        && one.config().health == other.config().health
        && one.headers() == other.headers()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[test]
    fn few_endpoints_are_asked_at_once() {
        for count in 0..=AT_ONCE {
            assert!((0..count).all(|nth| first_pause(nth, count, INTERVAL).is_zero()));
        }
    }

    #[test]
    fn the_others_are_asked_evenly_over_the_interval() {
        for count in [AT_ONCE + 1, 20, 1_000] {
            let pauses: Vec<_> = (AT_ONCE - 1..count)
                .map(|nth| first_pause(nth, count, INTERVAL))
                .collect();
            let apart = INTERVAL.div_f64((count - AT_ONCE + 1) as f64);
            let rounding = Duration::from_micros(1);
            for pair in pauses.windows(2) {
                assert!((pair[1] - pair[0]).abs_diff(apart) < rounding, "{count}");
            }
            assert!((pauses[pauses.len() - 1] + apart).abs_diff(INTERVAL) < rounding);
        }
        assert!(first_pause(999, 1_000, Duration::MAX) < Duration::MAX);
    }
}
