//! Endpoints of a router that change while requests wait.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use http::{Request, Response, Uri};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{advance, timeout};
use tower::{Layer, ServiceExt, service_fn};

use super::*;
use crate::admit::Capacity;
use crate::endpoints::{Endpoint, Model, Registry, Requirements};
use crate::queue::QueueConfig;
use crate::{Priority, RejectReason, Ticket};

fn endpoint(name: &str, slots: u32, models: &[&str]) -> Endpoint {
    let empty = Endpoint::new(name, Uri::from_static("http://127.0.0.1")).max_concurrent(slots);
    let models = models.iter().map(|&model| Model::new(model));
    models.fold(empty, Endpoint::model)
}

/// Of two requests that wait for a half-open endpoint, one probes it; the other need not wait for the result.
#[tokio::test(start_paused = true)]
async fn a_waiter_beside_a_probe_takes_the_fallback() {
    let several = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])];
    let routing = RoutingConfig::default().fallbacks("m", ["n"]);
    let router = RouteLayer::builder(Registry::new(several.into()).unwrap());
    let layer = router.routing(routing).demand_from_path_segment(0).build();
    let handle = layer.handle();
    let gate = &handle.0.state.gate;
    let [a, b] = [0, 1].map(|at| handle.endpoints()[at].clone());
    let service = layer.layer(service_fn(|_| {
        pending::<Result<Response<String>, Infallible>>()
    }));

    let demand = gate.capacity().demand(&Requirements::new("m"));
    let last = gate.try_acquire(&demand).unwrap();
    _ = a.state().word.eject();
    gate.capacity().half_open(&a);
    let waiters = [(); 2].map(|()| {
        let request = Request::get("/m").body(String::new()).unwrap();
        tokio::spawn(service.clone().oneshot(request))
    });
    advance(Duration::from_millis(1)).await;
    assert_eq!(handle.status().depth, 2);
    drop(last);
    advance(Duration::from_millis(1)).await;
    assert_eq!(handle.status().depth, 0);
    assert_eq!((a.in_flight(), b.in_flight()), (1, 1));
    waiters.iter().for_each(|waiter| waiter.abort());
}

/// How often each writer changes something: `ROUNDS=100000 cargo test --release --all-features concurrent_changes`.
fn rounds() -> usize {
    std::env::var("ROUNDS").map_or(400, |rounds| rounds.parse().unwrap())
}

/// The models that an endpoint serves are never `always` alone: the others come and go.
fn changing_endpoint(nth: usize, round: usize) -> Endpoint {
    let slots = 1 + (nth + round) as u32 % 3;
    let sometimes = ["x", "y", "z"][(nth + round) % 3];
    endpoint(&format!("e{nth}"), slots, &["always", sometimes])
}

fn come_and_go(handle: &RouteHandle, nth: usize, round: usize) {
    let name = format!("e{nth}");
    let is_it = |endpoint: &Endpoint| endpoint.name == name;
    let changed = handle.change_endpoints(|all| match all.iter().position(is_it) {
        Some(at) if round.is_multiple_of(3) => _ = all.remove(at),
        Some(at) => all[at] = changing_endpoint(nth, round),
        None => all.push(changing_endpoint(nth, round)),
    });
    changed.unwrap();
    let all = handle.endpoints();
    let Some(endpoint) = all.iter().find(|endpoint| endpoint.name() == name) else {
        return;
    };
    handle.set_draining(endpoint, round.is_multiple_of(5));
    handle.set_healthy(endpoint, !round.is_multiple_of(7));
    handle.set_limit(endpoint, (round % 4) as u32);
    if round.is_multiple_of(8) {
        let registry = (*handle.registry()).clone();
        let strategy = StrategyChoice::NAMES[round / 8 % StrategyChoice::NAMES.len()];
        let routing = RoutingConfig::default()
            .strategy(strategy.parse().unwrap())
            .alias("other", "always");
        handle.replace(registry, routing).unwrap();
    }
}

#[test]
fn concurrent_changes_lose_no_request_and_no_slot() {
    let first = endpoint("steady", 2, &["always"]);
    let queue = QueueConfig::default().max_size(1_000);
    let router = RouteLayer::builder(Registry::new(vec![first]).unwrap()).queue(queue);
    let layer = router
        .routing(RoutingConfig::default().alias("other", "always"))
        .build();
    let handle = layer.handle();
    let gate = handle.0.state.gate.clone();
    let done = Arc::new(AtomicBool::new(false));

    let mut writers = Vec::new();
    for writer in 0..3 {
        let handle = handle.clone();
        writers.push(thread::spawn(move || {
            for round in 0..rounds() {
                come_and_go(&handle, writer + 3 * (round % 2), round);
            }
        }));
    }
    let mut readers = Vec::new();
    for reader in 0..2 {
        let (gate, done) = (gate.clone(), Arc::clone(&done));
        readers.push(thread::spawn(move || {
            for nth in (reader..).take_while(|_| !done.load(SeqCst)) {
                let name = ["always", "other", "x"][nth % 3];
                let demand = gate.capacity().demand(&Requirements::new(name));
                let pools = gate.capacity().pools(&gate.capacity().lane(&demand));
                assert!(name == "x" || !pools.is_empty());
                drop(gate.try_acquire(&demand));
            }
        }));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for nth in 0..24 {
            let (gate, done) = (gate.clone(), Arc::clone(&done));
            tasks.spawn(async move {
                let name = ["always", "other", "y"][nth % 3];
                while !done.load(SeqCst) {
                    let demand = gate.capacity().demand(&Requirements::new(name));
                    let ticket = Ticket::new(Priority::HIGHEST, Instant::now());
                    match gate.acquire(ticket, demand).await {
                        Ok(permit) => {
                            yield_now().await;
                            drop(permit);
                        }
                        Err(RejectReason::Unservable(why)) => assert_eq!(name, "y", "{why}"),
                        Err(why) => panic!("{why}"),
                    }
                    yield_now().await;
                }
            });
        }
        let changed: Vec<_> = writers.into_iter().map(thread::JoinHandle::join).collect();
        done.store(true, SeqCst);
        let looked = readers.into_iter().map(thread::JoinHandle::join);
        assert!(changed.into_iter().chain(looked).all(|ended| ended.is_ok()));
        // A request for a model that only endpoints without slots serve would wait on.
        let all = handle.endpoints();
        all.iter()
            .for_each(|endpoint| handle.set_limit(endpoint, 1));
        let all_ended = timeout(Duration::from_secs(60), tasks.join_all());
        all_ended.await.expect("a waiter was never woken");
    });
    let status = handle.status();
    assert_eq!((status.depth, status.running), (0, 0));
    let all = handle.endpoints();
    assert!(all.iter().all(|endpoint| endpoint.in_flight() == 0));
    assert!(status.served > 0);
}
