//! A router under load and change: endpoints fail and recover, are drained, changed and limited, while callers arrive
//! and cancel. `SECONDS=120 cargo test --release --all-features --test route_stress` for longer.
#![cfg(not(loom))]

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage::endpoints::{Endpoint, Model, Registry};
use tower_triage::route::{RouteBody, RoutingConfig};
use tower_triage::{QueueConfig, RouteHandle, RouteLayer};

/// How long no request may be answered before the test fails.
const STALLED: Duration = Duration::from_secs(30);
const CALLERS: usize = 24;

#[test]
fn nothing_is_lost_under_failures_drains_and_changes() {
    stress(|handle, round| match round % 4 {
        0 => drain(handle, round),
        1 => set_limit(handle, round),
        2 => change(handle, round),
        _ => set_healthy(handle, round),
    });
}

#[test]
fn nothing_is_lost_under_failures_and_ejections() {
    stress(|_, _| thread::sleep(Duration::from_millis(1)));
}

#[test]
fn nothing_is_lost_under_drains() {
    stress(drain);
}

#[test]
fn nothing_is_lost_under_health_changes() {
    stress(set_healthy);
}

#[test]
fn nothing_is_lost_under_configuration_changes() {
    stress(change);
}

fn drain(handle: &RouteHandle, round: usize) {
    let endpoints = handle.endpoints();
    let endpoint = &endpoints[round % endpoints.len()];
    handle.set_draining(endpoint, !round.is_multiple_of(3));
    handle.set_draining(endpoint, false);
}

fn set_healthy(handle: &RouteHandle, round: usize) {
    let endpoints = handle.endpoints();
    let endpoint = &endpoints[round % endpoints.len()];
    handle.set_healthy(endpoint, round.is_multiple_of(3));
    handle.set_healthy(endpoint, true);
}

fn set_limit(handle: &RouteHandle, round: usize) {
    let endpoints = handle.endpoints();
    let endpoint = &endpoints[round % endpoints.len()];
    handle.set_limit(endpoint, (round % 3) as u32);
    handle.set_limit(endpoint, 2);
}

fn change(handle: &RouteHandle, round: usize) {
    let changed = handle.change_endpoints(|all| {
        let nth = round % 4;
        all[nth] = endpoint(nth, round);
    });
    changed.unwrap();
}

fn endpoint(nth: usize, round: usize) -> Endpoint {
    let url = http::Uri::from_static("http://127.0.0.1:9");
    let other = ["x", "y"][(nth + round) % 2];
    Endpoint::new(format!("e{nth}"), url)
        .max_concurrent(1 + (round % 2) as u32)
        .model(Model::new("m").tools(nth.is_multiple_of(2)))
        .model(Model::new(other))
}

/// Runs callers, endpoints that answer badly now and then, and `disturb` over and over, until the time is up
/// or no request makes progress.
fn stress(disturb: impl Fn(&RouteHandle, usize) + Sync) {
    let registry = Registry::new((0..4).map(|nth| endpoint(nth, nth)).collect()).unwrap();
    let mut routing = RoutingConfig::default().fallbacks("x", ["m"]);
    routing.eject_after = 1;
    routing.eject_for = Duration::from_millis(1);
    let queue = QueueConfig::default().max_size(40);
    let layer = RouteLayer::builder(registry)
        .routing(routing)
        .queue(queue)
        .build();
    let handle = layer.handle();
    let route = layer.layer(service_fn(serve));
    let answered = Arc::new(AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watchdog = scope.spawn(|| watch(&answered, &done));
        scope.spawn(|| {
            for round in (0..).take_while(|_| !done.load(Relaxed)) {
                disturb(&handle, round);
            }
        });
        let runtime = Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut callers = JoinSet::new();
            let end = Instant::now() + duration();
            for nth in 0..CALLERS {
                callers.spawn(call(route.clone(), nth, end, Arc::clone(&answered)));
            }
            while let Some(ended) = callers.join_next().await {
                ended.unwrap();
            }
        });
        done.store(true, Relaxed);
        watchdog.join().unwrap();
    });
    let status = handle.status();
    assert_eq!((status.depth, status.running), (0, 0));
    assert!(status.served > 0);
}

/// Aborts the process if no request is answered for long: a thread that loops under a lock can't be joined.
fn watch(answered: &AtomicUsize, done: &AtomicBool) {
    let (mut last, mut since) = (0, Instant::now());
    while !done.load(Relaxed) {
        thread::sleep(Duration::from_millis(20));
        let now = answered.load(Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > STALLED {
            eprintln!("no request was answered for {STALLED:?}, after {now}");
            std::process::abort();
        }
    }
}

async fn call<S, B>(route: S, nth: usize, end: Instant, answered: Arc<AtomicUsize>)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body,
{
    let mut rng = fastrand::Rng::with_seed(nth as u64);
    while Instant::now() < end {
        let model = ["m", "x", "y"][rng.usize(..3)];
        let mut body = serde_json::json!({ "model": model });
        if rng.bool() {
            body["tools"] = serde_json::json!([{}]);
        }
        let request = Request::new(Full::from(body.to_string()));
        let asked = route.clone().oneshot(request);
        if rng.u8(..4) == 0 {
            let limit = Duration::from_micros(rng.u64(..1_000));
            let _ = timeout(limit, asked).await; // cancels, perhaps while it waits
        } else {
            let answer = asked.await.unwrap();
            let _ = answer.into_body().collect().await;
        }
        answered.fetch_add(1, Relaxed);
    }
}

async fn serve(_: Request<RouteBody<Full<Bytes>>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let fails = fastrand::u8(..3) == 0;
    for _ in 0..fastrand::u8(..8) {
        yield_now().await;
    }
    let mut answer = Response::new(Full::from("ok"));
    if fails {
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
    }
    Ok(answer)
}

/// How long each test runs.
fn duration() -> Duration {
    let seconds = std::env::var("SECONDS").map_or(1, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}
