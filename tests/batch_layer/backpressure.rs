//! Tests of `poll_ready`: it reserves a place in the waiting room.

use super::*;
use std::task::{Context, Poll, Wake};
use tower::Service as _;

async fn is_ready(service: &mut Service) -> bool {
    let poll = futures_util::poll!(std::future::poll_fn(|cx| service.poll_ready(cx)));
    matches!(poll, Poll::Ready(Ok(())))
}

fn small(engine: &Engine, max_size: usize) -> Service {
    engine.set(Readiness::Busy);
    layer(1, millis(5))
        .room(config(max_size))
        .layer(engine.service())
}

#[tokio::test(start_paused = true)]
async fn poll_ready_waits_while_the_room_is_full() {
    let engine = Engine::new();
    let mut service = small(&engine, 1);
    assert!(is_ready(&mut service).await);
    let first = tokio::spawn(service.call(job(0)));
    settle().await;
    assert!(!is_ready(&mut service).await);
    let next = send(&service, job(1)).await;
    assert!(!is_done(&next).await);
    engine.set(Readiness::Ready);
    assert_eq!((answer(first).await, answer(next).await), (0, 2));
    assert!(is_ready(&mut service).await);
}

#[tokio::test(start_paused = true)]
async fn ready_reserves_a_place_for_one_clone() {
    let engine = Engine::new();
    let mut service = small(&engine, 1);
    assert!(is_ready(&mut service).await);
    assert!(
        is_ready(&mut service).await,
        "polled twice, it is one place"
    );
    let mut other = service.clone();
    assert!(!is_ready(&mut other).await, "a clone has no reservation");
    let rejected = other.call(job(0)).await;
    assert!(matches!(
        rejected,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
    let waiting = tokio::spawn(service.call(job(1)));
    assert!(!is_done(&waiting).await);
    engine.set(Readiness::Ready);
    assert_eq!(answer(waiting).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_clone_returns_its_reservation() {
    let engine = Engine::new();
    let mut service = small(&engine, 1);
    let mut ready = service.clone();
    assert!(is_ready(&mut ready).await);
    let next = send(&service, job(0)).await;
    assert!(!is_done(&next).await);
    drop(ready);
    settle().await;
    assert!(
        !is_ready(&mut service).await,
        "the caller that waited has it"
    );
    engine.set(Readiness::Ready);
    assert_eq!(answer(next).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_clone_blocks_no_other_caller() {
    let engine = Engine::new();
    let service = small(&engine, 1);
    let first = send(&service, job(0)).await;
    let mut idle = service.clone();
    assert!(!is_ready(&mut idle).await);
    let next = send(&service, job(1)).await;
    engine.set(Readiness::Ready);
    assert_eq!((answer(first).await, answer(next).await), (0, 2));
    drop(idle);
    assert_eq!(answer(send(&service, job(2)).await).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_caller_cancelled_in_poll_ready_leaves_no_trace() {
    let engine = Engine::new();
    let mut service = small(&engine, 1);
    let first = send(&service, job(0)).await;
    let reserving = send(&service, job(1)).await;
    reserving.abort();
    settle().await;
    engine.set(Readiness::Ready);
    assert_eq!(answer(first).await, 0);
    assert!(is_ready(&mut service).await);
    assert_eq!(engine.batches(), [[0]]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_clone_leaves_no_waker_behind() {
    let engine = Engine::new();
    let service = small(&engine, 1);
    let _waiting = send(&service, job(0)).await;
    let waker = Arc::new(Idle);
    let mut clone = service.clone();
    let polled = clone.poll_ready(&mut Context::from_waker(&waker.clone().into()));
    assert!(polled.is_pending());
    assert_eq!(Arc::strong_count(&waker), 2);
    drop(clone);
    assert_eq!(Arc::strong_count(&waker), 1);
}

struct Idle;

impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test(start_paused = true)]
async fn a_max_size_of_zero_rejects_every_call() {
    let engine = Engine::new();
    let service = small(&engine, 0);
    assert_eq!(
        why(send(&service, job(0)).await).await,
        RejectReason::Disabled
    );
}
