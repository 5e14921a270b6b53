//! Batch work in the troughs of online traffic: it takes the slots that are left, and costs the online traffic next to nothing.

use std::convert::Infallible;
use std::f64::consts::TAU;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response};
use http_body_util::Full;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::admit::ReservedSlots;
use tower_triage::{PriorityLevels, QueueConfig, QueueLayer, WaitingRoomConfig};
use tower_triage_durable::{NewRequest, RequestId, Store, StoreConfig, Worker, encode_request};
use tower_triage_embedded::EmbeddedStore;

const SLOTS: usize = 48;
const SERVICE: f64 = 0.5;
/// The time from one peak of the online traffic to the next.
const PERIOD: f64 = 40.0;
const SECONDS: f64 = 3.0 * PERIOD;

/// The seconds for which an online request is served: the same ones with and without a backlog.
#[derive(Clone, Copy)]
struct ServiceTime(f64);

/// The slots that work at this moment, and the slot time that they have worked so far.
#[derive(Default)]
struct Busy {
    slots: AtomicUsize,
    worked: Mutex<f64>,
    since: Mutex<Option<Instant>>,
}

impl Busy {
    fn change(&self, by: isize) {
        let now = Instant::now();
        let since = self.since.lock().unwrap().replace(now).unwrap_or(now);
        let slots = self.slots.load(Relaxed);
        *self.worked.lock().unwrap() += slots as f64 * (now - since).as_secs_f64();
        self.slots.store(slots.saturating_add_signed(by), Relaxed);
    }
}

/// The waits of online requests, and the busy share of the slots.
#[derive(Debug)]
struct Figures {
    /// The wait of online requests, without their service, that 99 of 100 do not exceed; in seconds.
    p99: f64,
    /// The share of online requests that were refused.
    refused: f64,
    /// The share of the slot time in which slots worked.
    busy: f64,
}

/// Runs online traffic whose load swings between 0.3 and 1.2, beside a backlog of this many requests.
async fn run(backlog: u128) -> Figures {
    let levels = PriorityLevels::new(["online", "batch"], "online").unwrap();
    let config = QueueConfig::new(SLOTS).levels(levels.clone());
    let config = config.reserve("online", ReservedSlots::Slots(1));
    let layer = QueueLayer::new(config);
    let gate = layer.handle().gate().unwrap().clone();
    let busy = Arc::new(Busy::default());
    let works = Arc::clone(&busy);
    let batch_services = Arc::new(Mutex::new(Rng::with_seed(1)));
    let service = layer.layer(service_fn(move |request: Request<Full<Bytes>>| {
        let busy = Arc::clone(&works);
        let service = request.extensions().get::<ServiceTime>().copied();
        let batch = || exponential(SERVICE, &mut batch_services.lock().unwrap());
        let service = service.map_or_else(batch, |ServiceTime(seconds)| seconds);
        async move {
            busy.change(1);
            sleep(Duration::from_secs_f64(service)).await;
            busy.change(-1);
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::new())))
        }
    }));

    let order = WaitingRoomConfig::default().levels(levels);
    let store = EmbeddedStore::in_memory(StoreConfig::default().order(order)).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let stored = encode_request(&Request::new(Bytes::new()));
    for id in 0..backlog {
        let mut request = NewRequest::new(RequestId::from_bits(id + 1), stored.clone());
        request.level = 1; // "batch"
        store.enqueue(request).await.unwrap();
    }
    let worker = tokio::spawn(Worker::new(store, service.clone()).slots(gate).run());

    let mut random = Rng::with_seed(9);
    let start = Instant::now();
    let mut online = JoinSet::new();
    let mut at = 0.0;
    loop {
        // Swings around 0.75.
        let load = 0.75 + 0.45 * (TAU * at / PERIOD).sin();
        at += exponential(SERVICE / (load * SLOTS as f64), &mut random);
        if at >= SECONDS {
            break;
        }
        sleep_until(start + Duration::from_secs_f64(at)).await;
        let service = service.clone();
        let mut request = Request::new(Full::new(Bytes::new()));
        let seconds = exponential(SERVICE, &mut random);
        request.extensions_mut().insert(ServiceTime(seconds));
        online.spawn(async move {
            let response = service.oneshot(request).await.unwrap();
            // The queue says how long a request waited for its slot.
            (response.status().is_success(), waited(&response))
        });
    }
    busy.change(0);
    let worked = *busy.worked.lock().unwrap();
    worker.abort();
    let answers = online.join_all().await;
    let served = answers.iter().filter(|(is_served, _)| *is_served);
    let mut waits: Vec<f64> = served.map(|&(_, waited)| waited).collect();
    waits.sort_by(f64::total_cmp);
    Figures {
        p99: waits[waits.len() * 99 / 100],
        refused: 1.0 - waits.len() as f64 / answers.len() as f64,
        busy: worked / (SECONDS * SLOTS as f64),
    }
}

/// Returns the time that a response's request waited for its slot, in seconds.
fn waited<B>(response: &Response<B>) -> f64 {
    let timing = response.headers().get("server-timing");
    let text = timing.map_or("", |timing| timing.to_str().unwrap());
    let milliseconds = text.split("dur=").nth(1).unwrap_or("0");
    milliseconds
        .split([',', ';'])
        .next()
        .unwrap()
        .parse::<f64>()
        .unwrap()
        / 1e3
}

fn exponential(mean: f64, random: &mut Rng) -> f64 {
    -(1.0 - random.f64()).ln() * mean
}

#[tokio::test(start_paused = true)]
async fn batch_work_fills_the_troughs_and_online_requests_hardly_notice() {
    let alone = run(0).await;
    let beside = run(12_000).await;
    println!("alone: {alone:?}\nbeside a backlog: {beside:?}");
    assert!(beside.busy >= 0.97, "{beside:?}");
    assert!(beside.p99 <= 1.05 * alone.p99, "{alone:?}, {beside:?}");
    assert!(
        beside.refused <= alone.refused + 0.01,
        "{alone:?}, {beside:?}"
    );
}
