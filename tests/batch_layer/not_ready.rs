//! Tests with an inner service that is not ready: no batch goes until it is.

use super::*;

#[tokio::test(start_paused = true)]
async fn requests_join_until_the_service_is_ready() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let service = service(&engine, 3, millis(5));
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(send(&service, job(number)).await);
    }
    advance(millis(100)).await;
    for number in 4..6 {
        sent.push(send(&service, job(number).urgent()).await);
    }
    assert!(engine.batches().is_empty());
    engine.set(Readiness::Ready);
    settle().await;
    assert_eq!(engine.calls(), [(100, vec![4, 5, 0]), (100, vec![1, 2, 3])]);
    for (number, sent) in (0..6).zip(sent) {
        assert_eq!(answer(sent).await, 2 * number);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_max_count_wait_for_the_next_batch() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let service = service(&engine, 3, millis(50));
    advance(millis(10)).await;
    for number in 0..3 {
        drop(send(&service, job(number)).await);
    }
    advance(millis(30)).await;
    let rest = send(&service, job(3)).await;
    engine.set(Readiness::Ready);
    assert_eq!(answer(rest).await, 6);
    assert_eq!(engine.calls(), [(40, vec![0, 1, 2]), (90, vec![3])]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_due_anew_after_its_oldest_left() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let service = service(&engine, 8, millis(50));
    let first = send(&service, job(0)).await;
    advance(millis(60)).await;
    let second = send(&service, job(1)).await;
    first.abort();
    settle().await;
    engine.set(Readiness::Ready);
    assert_eq!(answer(second).await, 2);
    assert_eq!(engine.calls(), [(110, vec![1])]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_batch_is_not_sent() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let service = service(&engine, 1, millis(5));
    let cancelled = send(&service, job(0)).await;
    cancelled.abort();
    settle().await;
    engine.set(Readiness::Ready);
    settle().await;
    assert!(engine.batches().is_empty());
    assert_eq!(answer(send(&service, job(1)).await).await, 2);
    assert_eq!(engine.batches(), [[1]]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_service_fails_all_callers_with_its_error() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let mut service = layer(2, millis(5)).room(config(3)).layer(engine.service());
    let mut waiting = Vec::new();
    for number in 0..3 {
        waiting.push(send(&service, job(number)).await);
    }
    let reserving = send(&service, job(3)).await;
    engine.set(Readiness::Broken);
    waiting.push(reserving);
    for waiting in waiting {
        assert_broken(waiting.await.unwrap());
    }
    assert!(!engine.is_alive());
    let ready = service.ready().await.map(|_| 0);
    assert_broken(ready);
    let later = tower::Service::call(&mut service, job(4)).await;
    assert_broken(later);
}

#[tokio::test(start_paused = true)]
async fn a_broken_service_still_answers_running_batches() {
    let engine = Engine::manual();
    let service = service(&engine, 1, millis(5));
    let running = send(&service, job(0)).await;
    engine.set(Readiness::Broken);
    assert_broken(send(&service, job(1)).await.await.unwrap());
    engine.finish();
    assert_eq!(answer(running).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_of_a_broken_service_fails() {
    let engine = Engine::new();
    let service = service(&engine, 1, millis(5));
    let mut ready = service.clone();
    ready.ready().await.unwrap();
    engine.set(Readiness::Broken);
    assert_broken(send(&service, job(0)).await.await.unwrap());
    assert_broken(tower::Service::call(&mut ready, job(1)).await);
    assert_broken(ready.ready().await.map(|_| 0));
}

fn assert_broken(answer: Result<u32, Error>) {
    match answer {
        Err(BatchError::Inner(why)) => assert_eq!(*why, "broken"),
        other => panic!("{other:?}"),
    }
}
