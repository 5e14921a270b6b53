//! Tests of when a batch goes.

use super::*;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_batch_full_by_count_goes_at_once() {
    let engine = Engine::new();
    let service = service(&engine, 3, HOUR);
    let mut sent = Vec::new();
    for number in 0..7 {
        sent.push(send(&service, job(number)).await);
    }
    assert_eq!(engine.calls(), [(0, vec![0, 1, 2]), (0, vec![3, 4, 5])]);
    for (number, sent) in (0..6).zip(sent) {
        assert_eq!(answer(sent).await, 2 * number);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_full_by_cost_goes_at_once() {
    let engine = Engine::new();
    let service = layer(100, HOUR)
        .cost(10, |job: &Job| job.cost)
        .layer(engine.service());
    for (number, cost) in [(0, 4), (1, 5), (2, 1), (3, 9)] {
        drop(tokio::spawn(
            service.clone().oneshot(job(number).costs(cost)),
        ));
        settle().await;
    }
    assert_eq!(engine.batches(), [[0, 1, 2]]);
    // The next request does not fit, so that the batch cannot become fuller.
    drop(send(&service, job(4).costs(2)).await);
    assert_eq!(engine.batches(), [vec![0, 1, 2], vec![3]]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_when_its_oldest_waited_max_delay() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    let mut sent = Vec::new();
    for number in 0..3 {
        sent.push(send(&service, job(number)).await);
        advance(millis(15)).await;
    }
    assert!(!is_done(&sent[0]).await);
    advance(millis(5)).await;
    settle().await;
    advance(millis(10)).await;
    sent.push(send(&service, job(3).urgent()).await);
    for sent in sent {
        answer(sent).await;
    }
    assert_eq!(engine.calls(), [(50, vec![0, 1, 2]), (110, vec![3])]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_left_no_longer_counts_for_the_delay() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    let first = send(&service, job(0)).await;
    advance(millis(20)).await;
    let second = send(&service, job(1)).await;
    first.abort();
    assert_eq!(answer(second).await, 2);
    assert_eq!(engine.calls(), [(70, vec![1])]);
}

#[tokio::test(start_paused = true)]
async fn a_requeued_request_makes_its_batch_due_sooner() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    advance(millis(100)).await;
    let first = send(&service, job(0)).await;
    let mut again = job(1);
    again.ticket.arrival = Some(Instant::now().into_std() - millis(30));
    again.ticket = again.ticket.requeued();
    let again = send(&service, again).await;
    assert_eq!((answer(first).await, answer(again).await), (0, 2));
    assert_eq!(engine.calls(), [(120, vec![1, 0])]);
}

#[tokio::test(start_paused = true)]
async fn a_future_arrival_delays_no_batch() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    let mut early = job(0);
    early.ticket.arrival = Some(Instant::now().into_std() + HOUR);
    let early = send(&service, early).await;
    let other = send(&service, job(1)).await;
    assert_eq!((answer(early).await, answer(other).await), (0, 2));
    assert_eq!(engine.calls(), [(50, vec![0, 1])]);
}

#[tokio::test(start_paused = true)]
async fn without_delay_a_batch_takes_all_that_wait() {
    let engine = Engine::manual();
    let inner = tower::limit::ConcurrencyLimit::new(engine.service(), 1);
    let service = layer(8, Duration::ZERO).layer(inner);
    for number in 0..5 {
        drop(send(&service, job(number)).await);
    }
    assert_eq!(engine.batches(), [[0]]);
    engine.finish();
    settle().await;
    assert_eq!(engine.calls(), [(0, vec![0]), (0, vec![1, 2, 3, 4])]);
}

#[tokio::test(start_paused = true)]
async fn a_max_count_of_one_sends_single_requests() {
    for max_count in [0, 1] {
        let engine = Engine::new();
        let service = service(&engine, max_count, HOUR);
        for number in 0..3 {
            assert_eq!(answer(send(&service, job(number)).await).await, 2 * number);
        }
        assert_eq!(engine.batches(), [[0], [1], [2]]);
    }
}

#[tokio::test(start_paused = true)]
async fn with_an_endless_delay_only_full_batches_go() {
    let engine = Engine::new();
    let service = layer(2, Duration::MAX)
        .room(config(100))
        .layer(engine.service());
    let first = send(&service, job(0)).await;
    advance(24 * HOUR).await;
    assert!(!is_done(&first).await);
    let second = send(&service, job(1)).await;
    assert_eq!((answer(first).await, answer(second).await), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_full_room_sends_its_batch_at_once() {
    let engine = Engine::new();
    let service = layer(8, HOUR).room(config(2)).layer(engine.service());
    let first = send(&service, job(0)).await;
    let second = send(&service, job(1)).await;
    assert_eq!((answer(first).await, answer(second).await), (0, 2));
    assert_eq!(engine.calls(), [(0, vec![0, 1])]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_service_sends_its_last_batch_at_once() {
    let engine = Engine::new();
    let service = service(&engine, 8, HOUR);
    let first = send(&service, job(0)).await;
    assert!(!is_done(&first).await);
    drop(service);
    assert_eq!(answer(first).await, 0);
    assert_eq!(engine.calls(), [(0, vec![0])]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_request_makes_no_batch_due() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    let late = send(&service, job(0).within(millis(50))).await;
    advance(millis(10)).await;
    let other = send(&service, job(1)).await;
    assert_eq!(why(late).await, RejectReason::DeadlinePassed);
    assert_eq!(answer(other).await, 2);
    assert_eq!(engine.calls(), [(60, vec![1])]);
}
