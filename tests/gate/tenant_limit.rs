//! A tenant's limit of slots, and the ways in which a slot is given back.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::admit::TargetWait;
use tower_triage::gate::{Acquire, Permit};
use tower_triage::{Gate, Priority, QueueConfig, QueueLayer, SlotPool, Ticket, WaitingRoomConfig};

fn gate() -> Gate<SlotPool> {
    let config = WaitingRoomConfig::default().max_concurrent_per_tenant(1);
    Gate::new(SlotPool::new(8), config)
}

/// A request of this tenant, which was polled once.
fn asks(
    gate: &Gate<SlotPool>,
    tenant: &'static str,
) -> (Pin<Box<Acquire<SlotPool>>>, Option<Permit<SlotPool>>) {
    let ticket = Ticket::from(Priority::HIGHEST).tenant(tenant.into());
    let mut acquire = Box::pin(gate.acquire(ticket, ()));
    let permit = poll(&mut acquire);
    (acquire, permit)
}

fn poll(acquire: &mut Pin<Box<Acquire<SlotPool>>>) -> Option<Permit<SlotPool>> {
    let mut cx = Context::from_waker(Waker::noop());
    match acquire.as_mut().poll(&mut cx) {
        Poll::Ready(answer) => Some(answer.unwrap()),
        Poll::Pending => None,
    }
}

/// A gate in which a request has its tenant's only slot and another waits for it.
fn at_the_limit() -> (
    Gate<SlotPool>,
    Permit<SlotPool>,
    Pin<Box<Acquire<SlotPool>>>,
) {
    let gate = gate();
    let (_, first) = asks(&gate, "a");
    let (second, none) = asks(&gate, "a");
    assert!(none.is_none());
    assert!(asks(&gate, "b").1.is_some());
    (gate, first.unwrap(), second)
}

#[test]
fn a_permit_that_is_dropped_lets_the_next_of_its_tenant_go() {
    let (gate, first, mut second) = at_the_limit();
    drop(first);
    let second = poll(&mut second).unwrap();
    assert!(asks(&gate, "a").1.is_none());
    drop(second);
    assert!(asks(&gate, "a").1.is_some());
}

#[test]
fn a_detached_permit_counts_until_it_is_released() {
    let (gate, first, mut second) = at_the_limit();
    let first = first.detach();
    assert!(poll(&mut second).is_none());
    let first = gate.reattach(&first).unwrap().detach();
    assert!(poll(&mut second).is_none());
    assert!(gate.release(&first));
    assert!(poll(&mut second).is_some());
}

#[test]
fn a_slot_that_is_not_taken_is_given_back() {
    let (gate, first, second) = at_the_limit();
    let (mut third, _) = asks(&gate, "a");
    drop(first);
    // Granted, and never polled.
    drop(second);
    assert!(poll(&mut third).is_some());
    assert_eq!(gate.status().running, 0);
}

#[test]
fn a_gate_with_a_limit_gives_no_slot_without_a_tenant() {
    assert!(gate().try_acquire(&()).is_none());
}

#[test]
fn a_slot_that_was_counted_is_counted_back_whatever_the_limit_is_now() {
    let (gate, first, mut second) = at_the_limit();
    let unlimited = WaitingRoomConfig::default();
    gate.reconfigure(unlimited.clone());
    let second = poll(&mut second).unwrap();
    gate.reconfigure(unlimited.max_concurrent_per_tenant(1));
    // The first still counts; the second never did.
    let (mut third, none) = asks(&gate, "a");
    assert!(none.is_none());
    drop(second);
    assert!(poll(&mut third).is_none());
    drop(first);
    assert!(poll(&mut third).is_some());
}

#[tokio::test]
async fn a_body_holds_its_tenant_s_slot() {
    let config = QueueConfig::new(8).max_concurrent_per_tenant(1);
    let layer = QueueLayer::new(config);
    let handle = layer.handle();
    let service = layer.layer(service_fn(|_: Request<Empty<Bytes>>| async {
        let body = http_body_util::Full::new(Bytes::from("fine"));
        Ok::<_, Infallible>(Response::new(body))
    }));
    let ask = |tenant: &str| {
        let request = Request::get("/").header("x-tenant-id", tenant);
        let request = request.body(Empty::new()).unwrap();
        tokio::spawn(service.clone().oneshot(request))
    };
    let first = ask("a").await.unwrap().unwrap();
    let second = ask("a");
    while handle.status().depth == 0 {
        tokio::task::yield_now().await;
    }
    drop(ask("b").await.unwrap().unwrap());
    assert_eq!(handle.status().depth, 1);
    // With it the body, and the slot.
    drop(first);
    drop(second.await.unwrap().unwrap());
    assert_eq!(handle.status().running, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_thread_loses_a_wake_up_or_exceeds_a_limit() {
    const TENANTS: [&str; 3] = ["a", "b", "c"];
    const LIMIT: usize = 2;
    let config = WaitingRoomConfig::default()
        .max_size(1_000)
        .max_wait(None)
        .target_wait(TargetWait::Off)
        .max_concurrent_per_tenant(LIMIT);
    let gate = Gate::new(SlotPool::new(5), config);
    let running: Arc<[AtomicUsize; 3]> = Arc::default();
    let tasks = (0..24).map(|task| {
        let (gate, running) = (gate.clone(), Arc::clone(&running));
        let tenant = task % TENANTS.len();
        tokio::spawn(async move {
            for nth in 0..200 {
                let ticket = Ticket::from(Priority::HIGHEST).tenant(TENANTS[tenant].into());
                let mut acquire = Box::pin(gate.acquire(ticket, ()));
                // Some leave again, granted or not.
                if nth % 7 == 3 {
                    let polled = poll(&mut acquire);
                    tokio::task::yield_now().await;
                    drop((polled, acquire));
                    continue;
                }
                let permit = acquire.await.unwrap();
                assert!(running[tenant].fetch_add(1, SeqCst) < LIMIT);
                tokio::task::yield_now().await;
                running[tenant].fetch_sub(1, SeqCst);
                drop(permit);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        let ended = tokio::time::timeout(Duration::from_secs(60), task).await;
        ended.expect("a wake-up was lost").unwrap();
    }
    let status = gate.status();
    assert_eq!((status.running, status.depth), (0, 0));
}
