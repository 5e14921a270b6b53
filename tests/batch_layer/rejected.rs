//! Who never joins a batch, and why.

use super::*;
use tower::Service as _;
use tower_triage::batch::TooLarge;

fn busy(room: WaitingRoomConfig) -> (Engine, Service) {
    let engine = Engine::new();
    engine.is(Mood::Busy);
    let layer = layer(8, millis(5)).room(room);
    let service = layer.cost(10, |job: &Job| job.cost).layer(engine.service());
    (engine, service)
}

#[tokio::test(start_paused = true)]
async fn who_is_not_served_within_the_longest_wait() {
    let mut limited = room(8);
    limited.max_wait = Some(millis(100));
    let (engine, service) = busy(limited);
    let begin = Instant::now();
    let late = send(&service, job(0)).await;
    advance(millis(40)).await;
    let other = send(&service, job(1)).await;
    assert_eq!(why(late).await, RejectReason::TimedOut);
    assert_eq!(begin.elapsed(), millis(100));
    engine.is(Mood::Ready);
    assert_eq!(answer(other).await, 2);
    assert_eq!(engine.batches(), [[1]]);
}

#[tokio::test(start_paused = true)]
async fn whose_deadline_passes() {
    let (engine, service) = busy(room(8));
    let begin = Instant::now();
    let other = send(&service, job(0)).await;
    let late = send(&service, job(1).within(millis(20))).await;
    assert_eq!(why(late).await, RejectReason::DeadlinePassed);
    assert_eq!(begin.elapsed(), millis(20));
    let too_late = send(&service, job(2).within(Duration::ZERO)).await;
    assert_eq!(why(too_late).await, RejectReason::DeadlinePassed);
    engine.is(Mood::Ready);
    assert_eq!(answer(other).await, 0);
}

#[tokio::test(start_paused = true)]
async fn whose_chair_somebody_more_urgent_takes() {
    let mut displacing = room(2);
    displacing.displace = true;
    let (engine, mut service) = busy(displacing);
    let first = send(&service, job(0)).await;
    let second = send(&service, job(1)).await;
    // Whoever asks to be ready waits for a chair like everyone else.
    let urgent = tokio::spawn(service.call(job(2).urgent()));
    assert_eq!(why(second).await, RejectReason::Displaced);
    engine.is(Mood::Ready);
    assert_eq!((answer(first).await, answer(urgent).await), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn who_is_urgent_takes_nobody_s_chair_unless_that_is_so_furnished() {
    let (engine, mut service) = busy(room(1));
    let first = send(&service, job(0)).await;
    let urgent = tokio::spawn(service.call(job(1).urgent()));
    engine.is(Mood::Ready);
    assert_eq!(answer(first).await, 0);
    assert_eq!(why(urgent).await, RejectReason::Full);
}

#[tokio::test(start_paused = true)]
async fn whose_tenant_has_taken_all_its_chairs() {
    let mut shared = room(8);
    shared.max_size_per_tenant = Some(1);
    let (engine, service) = busy(shared);
    let first = send(&service, job(0).of("a")).await;
    let second = send(&service, job(1).of("a")).await;
    let other = send(&service, job(2).of("b")).await;
    assert_eq!(why(second).await, RejectReason::TenantFull);
    engine.is(Mood::Ready);
    assert_eq!((answer(first).await, answer(other).await), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn who_costs_more_than_a_whole_batch_may() {
    let (engine, service) = busy(room(8));
    let whole = send(&service, job(0).costs(10)).await;
    let more = send(&service, job(1).costs(11)).await;
    let too_large = TooLarge {
        cost: 11,
        budget: 10,
    };
    assert_eq!(why(more).await, RejectReason::Unservable(too_large));
    engine.is(Mood::Ready);
    assert_eq!(answer(whole).await, 0);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_wait() {
    let (_engine, service) = busy(room(8));
    let mut impatient = job(0);
    impatient.ticket = impatient.ticket.no_wait();
    let refused = send(&service, impatient).await;
    assert_eq!(why(refused).await, RejectReason::NotQueued);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_uses_up_the_chair_of_its_caller_and_no_other() {
    let (_engine, mut service) = busy(room(1));
    for number in 0..3 {
        service.ready().await.unwrap();
        let refused = service.call(job(number).costs(11)).await;
        assert!(matches!(
            refused,
            Err(BatchError::Rejected(RejectReason::Unservable(_)))
        ));
    }
    service.ready().await.unwrap();
    let _seated = service.call(job(3));
    let full = service.call(job(4)).await;
    assert!(matches!(
        full,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
}
