//! When a batch goes.

use super::*;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn at_once_if_it_is_full_in_count() {
    let engine = Engine::new();
    let service = service(&engine, 3, HOUR);
    let mut sent = Vec::new();
    for number in 0..7 {
        sent.push(send(&service, job(number)).await);
    }
    assert_eq!(engine.went(), [(0, vec![0, 1, 2]), (0, vec![3, 4, 5])]);
    for (number, sent) in (0..6).zip(sent) {
        assert_eq!(answer(sent).await, 2 * number);
    }
}

#[tokio::test(start_paused = true)]
async fn at_once_if_it_is_full_in_cost() {
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
    // The next does not fit, so that nobody can: the batch is as full as it will be.
    drop(send(&service, job(4).costs(2)).await);
    assert_eq!(engine.batches(), [vec![0, 1, 2], vec![3]]);
}

#[tokio::test(start_paused = true)]
async fn at_the_instant_at_which_its_oldest_has_waited_long_enough() {
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
    assert_eq!(engine.went(), [(50, vec![0, 1, 2]), (110, vec![3])]);
}

#[tokio::test(start_paused = true)]
async fn the_delay_is_that_of_the_oldest_of_those_who_are_left() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    let first = send(&service, job(0)).await;
    advance(millis(20)).await;
    let second = send(&service, job(1)).await;
    first.abort();
    assert_eq!(answer(second).await, 2);
    assert_eq!(engine.went(), [(70, vec![1])]);
}

#[tokio::test(start_paused = true)]
async fn who_came_before_all_others_somewhere_else_makes_it_due_sooner() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    advance(millis(100)).await;
    let first = send(&service, job(0)).await;
    let mut again = job(1);
    again.ticket.arrival = Some(Instant::now().into_std() - millis(30));
    again.ticket = again.ticket.requeued();
    let again = send(&service, again).await;
    assert_eq!((answer(first).await, answer(again).await), (0, 2));
    assert_eq!(engine.went(), [(120, vec![1, 0])]);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_from_the_future_holds_nobody_up() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    let mut early = job(0);
    early.ticket.arrival = Some(Instant::now().into_std() + HOUR);
    let early = send(&service, early).await;
    let other = send(&service, job(1)).await;
    assert_eq!((answer(early).await, answer(other).await), (0, 2));
    assert_eq!(engine.went(), [(50, vec![0, 1])]);
}

#[tokio::test(start_paused = true)]
async fn at_once_without_a_delay_and_then_with_all_who_came_meanwhile() {
    let engine = Engine::by_hand();
    let inner = tower::limit::ConcurrencyLimit::new(engine.service(), 1);
    let service = layer(8, Duration::ZERO).layer(inner);
    for number in 0..5 {
        drop(send(&service, job(number)).await);
    }
    assert_eq!(engine.batches(), [[0]]);
    engine.finish();
    settle().await;
    assert_eq!(engine.went(), [(0, vec![0]), (0, vec![1, 2, 3, 4])]);
}

#[tokio::test(start_paused = true)]
async fn one_by_one_if_no_more_than_one_may_join() {
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
async fn only_if_it_is_full_when_the_delay_has_no_end() {
    let engine = Engine::new();
    let service = layer(2, Duration::MAX)
        .room(room(100))
        .layer(engine.service());
    let first = send(&service, job(0)).await;
    advance(24 * HOUR).await;
    assert!(!is_done(&first).await);
    let second = send(&service, job(1)).await;
    assert_eq!((answer(first).await, answer(second).await), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn at_once_if_nobody_else_finds_a_chair() {
    let engine = Engine::new();
    let service = layer(8, HOUR).room(room(2)).layer(engine.service());
    let first = send(&service, job(0)).await;
    let second = send(&service, job(1)).await;
    assert_eq!((answer(first).await, answer(second).await), (0, 2));
    assert_eq!(engine.went(), [(0, vec![0, 1])]);
}

#[tokio::test(start_paused = true)]
async fn at_once_if_nobody_will_ever_come() {
    let engine = Engine::new();
    let service = service(&engine, 8, HOUR);
    let first = send(&service, job(0)).await;
    assert!(!is_done(&first).await);
    drop(service);
    assert_eq!(answer(first).await, 0);
    assert_eq!(engine.went(), [(0, vec![0])]);
}

#[tokio::test(start_paused = true)]
async fn whose_wait_has_ended_makes_no_batch_due() {
    let engine = Engine::new();
    let service = service(&engine, 8, millis(50));
    let late = send(&service, job(0).within(millis(50))).await;
    advance(millis(10)).await;
    let other = send(&service, job(1)).await;
    assert_eq!(why(late).await, RejectReason::DeadlinePassed);
    assert_eq!(answer(other).await, 2);
    assert_eq!(engine.went(), [(60, vec![1])]);
}
