//! Callers that go away.

use super::*;

#[tokio::test(start_paused = true)]
async fn who_goes_away_leaves_a_batch_that_has_not_gone() {
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
async fn who_goes_away_leaves_a_free_chair_at_that_instant() {
    let engine = Engine::new();
    engine.is(Mood::Busy);
    let mut service = layer(8, millis(5)).room(room(1)).layer(engine.service());
    let call = tower::Service::call(&mut service, job(0));
    let full = tower::Service::call(&mut service, job(1)).await;
    assert!(matches!(
        full,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
    drop(call);
    let _seated = tower::Service::call(&mut service, job(2));
    let full = tower::Service::call(&mut service, job(3)).await;
    assert!(matches!(
        full,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_nobody_waits_for_is_dropped() {
    let engine = Engine::by_hand();
    let service = service(&engine, 2, millis(5));
    let first = send(&service, job(0)).await;
    let second = send(&service, job(1)).await;
    assert_eq!(engine.running(), 1);
    // In the other order than that in which they came.
    second.abort();
    settle().await;
    assert_eq!(engine.running(), 1);
    first.abort();
    settle().await;
    assert_eq!(engine.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_somebody_waits_for_goes_on() {
    for gone in 0..3 {
        let engine = Engine::by_hand();
        let service = service(&engine, 3, millis(5));
        let mut sent = Vec::new();
        for number in 0..3 {
            sent.push(send(&service, job(number)).await);
        }
        sent[gone].abort();
        settle().await;
        engine.finish();
        for (number, sent) in (0..).zip(sent) {
            if number as usize != gone {
                assert_eq!(answer(sent).await, 2 * number);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_has_left_a_batch_frees_no_chair_again() {
    let engine = Engine::by_hand();
    let mut service = layer(1, millis(5)).room(room(1)).layer(engine.service());
    let gone = send(&service, job(0)).await;
    engine.is(Mood::Busy);
    let _waiting = send(&service, job(1)).await;
    gone.abort();
    settle().await;
    let full = tower::Service::call(&mut service, job(2)).await;
    assert!(matches!(
        full,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
}
