//! Tests of callers that are cancelled.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_leaves_its_waiting_batch() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    let mut sent = Vec::new();
    for number in 0..3 {
        sent.push(send(&service, job(number)).await);
    }
    sent[1].abort();
    settle().await;
    advance(millis(50)).await;
    settle().await;
    assert_eq!(engine.batches(), [[0, 2]]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_frees_its_place_at_once() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let mut service = layer(8, millis(5)).room(config(1)).layer(engine.service());
    let call = tower::Service::call(&mut service, job(0));
    let full = tower::Service::call(&mut service, job(1)).await;
    assert!(matches!(
        full,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
    drop(call);
    let _waiting = tower::Service::call(&mut service, job(2));
    let full = tower::Service::call(&mut service, job(3)).await;
    assert!(matches!(
        full,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_batch_without_callers_is_dropped() {
    let engine = Engine::manual();
    let service = service(&engine, 2, millis(5));
    let first = send(&service, job(0)).await;
    let second = send(&service, job(1)).await;
    assert_eq!(engine.running(), 1);
    // In reverse order of arrival.
    second.abort();
    settle().await;
    assert_eq!(engine.running(), 1);
    first.abort();
    settle().await;
    assert_eq!(engine.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_with_one_caller_left_goes_on() {
    for cancelled in 0..3 {
        let engine = Engine::manual();
        let service = service(&engine, 3, millis(5));
        let mut sent = Vec::new();
        for number in 0..3 {
            sent.push(send(&service, job(number)).await);
        }
        sent[cancelled].abort();
        settle().await;
        engine.finish();
        for (number, sent) in (0..).zip(sent) {
            if number as usize != cancelled {
                assert_eq!(answer(sent).await, 2 * number);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_cancelled_in_a_batch_frees_no_place() {
    let engine = Engine::manual();
    let mut service = layer(1, millis(5)).room(config(1)).layer(engine.service());
    let cancelled = send(&service, job(0)).await;
    engine.set(Readiness::Busy);
    let _waiting = send(&service, job(1)).await;
    cancelled.abort();
    settle().await;
    let full = tower::Service::call(&mut service, job(2)).await;
    assert!(matches!(
        full,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
}
