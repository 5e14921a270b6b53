//! What `poll_ready` promises.

use super::*;
use std::task::{Context, Poll, Wake};
use tower::Service as _;

async fn is_ready(service: &mut Service) -> bool {
    let poll = futures_util::poll!(std::future::poll_fn(|cx| service.poll_ready(cx)));
    matches!(poll, Poll::Ready(Ok(())))
}

fn small(engine: &Engine, max_size: usize) -> Service {
    engine.is(Mood::Busy);
    layer(1, millis(5))
        .room(room(max_size))
        .layer(engine.service())
}

#[tokio::test(start_paused = true)]
async fn pending_while_every_chair_is_taken_and_told_when_one_is_free() {
    let engine = Engine::new();
    let mut service = small(&engine, 1);
    assert!(is_ready(&mut service).await);
    let first = tokio::spawn(service.call(job(0)));
    settle().await;
    assert!(!is_ready(&mut service).await);
    let next = send(&service, job(1)).await;
    assert!(!is_done(&next).await);
    engine.is(Mood::Ready);
    assert_eq!((answer(first).await, answer(next).await), (0, 2));
    assert!(is_ready(&mut service).await);
}

#[tokio::test(start_paused = true)]
async fn ready_is_a_chair_that_nobody_else_can_take() {
    let engine = Engine::new();
    let mut service = small(&engine, 1);
    assert!(is_ready(&mut service).await);
    assert!(is_ready(&mut service).await, "asked twice, it is one chair");
    let mut other = service.clone();
    assert!(!is_ready(&mut other).await, "a clone starts without");
    let refused = other.call(job(0)).await;
    assert!(matches!(
        refused,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
    let seated = tokio::spawn(service.call(job(1)));
    assert!(!is_done(&seated).await);
    engine.is(Mood::Ready);
    assert_eq!(answer(seated).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_is_dropped_gives_its_chair_back() {
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
        "the one who stood there has it"
    );
    engine.is(Mood::Ready);
    assert_eq!(answer(next).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_wanted_a_chair_and_asks_no_more_holds_nobody_up() {
    let engine = Engine::new();
    let service = small(&engine, 1);
    let first = send(&service, job(0)).await;
    let mut idle = service.clone();
    assert!(!is_ready(&mut idle).await);
    let next = send(&service, job(1)).await;
    engine.is(Mood::Ready);
    assert_eq!((answer(first).await, answer(next).await), (0, 2));
    drop(idle);
    assert_eq!(answer(send(&service, job(2)).await).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_stops_waiting_for_a_chair_leaves_no_trace() {
    let engine = Engine::new();
    let mut service = small(&engine, 1);
    let first = send(&service, job(0)).await;
    let standing = send(&service, job(1)).await;
    standing.abort();
    settle().await;
    engine.is(Mood::Ready);
    assert_eq!(answer(first).await, 0);
    assert!(is_ready(&mut service).await);
    assert_eq!(engine.batches(), [[0]]);
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_wanted_a_chair_leaves_no_waker_behind() {
    let engine = Engine::new();
    let service = small(&engine, 1);
    let _waiting = send(&service, job(0)).await;
    let waker = Arc::new(Idle);
    let mut standing = service.clone();
    let polled = standing.poll_ready(&mut Context::from_waker(&waker.clone().into()));
    assert!(polled.is_pending());
    assert_eq!(Arc::strong_count(&waker), 2);
    drop(standing);
    assert_eq!(Arc::strong_count(&waker), 1);
}

struct Idle;

impl Wake for Idle {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test(start_paused = true)]
async fn without_a_single_chair_it_is_ready_to_say_so() {
    let engine = Engine::new();
    let service = small(&engine, 0);
    assert_eq!(
        why(send(&service, job(0)).await).await,
        RejectReason::Disabled
    );
}
