//! Tests of requests that are rejected, and of their reasons.

use super::*;
use tower::Service as _;
use tower_triage::batch::TooLarge;

fn busy(config: WaitingRoomConfig) -> (Engine, Service) {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let layer = layer(8, millis(5)).room(config);
    let service = layer.cost(10, |job: &Job| job.cost).layer(engine.service());
    (engine, service)
}

#[tokio::test(start_paused = true)]
async fn a_request_is_rejected_after_max_wait() {
    let mut limited = config(8);
    limited.max_wait = Some(millis(100));
    let (engine, service) = busy(limited);
    let begin = Instant::now();
    let late = send(&service, job(0)).await;
    advance(millis(40)).await;
    let other = send(&service, job(1)).await;
    assert_eq!(why(late).await, RejectReason::TimedOut);
    assert_eq!(begin.elapsed(), millis(100));
    engine.set(Readiness::Ready);
    assert_eq!(answer(other).await, 2);
    assert_eq!(engine.batches(), [[1]]);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_rejected_at_its_deadline() {
    let (engine, service) = busy(config(8));
    let begin = Instant::now();
    let other = send(&service, job(0)).await;
    let late = send(&service, job(1).within(millis(20))).await;
    assert_eq!(why(late).await, RejectReason::DeadlinePassed);
    assert_eq!(begin.elapsed(), millis(20));
    let too_late = send(&service, job(2).within(Duration::ZERO)).await;
    assert_eq!(why(too_late).await, RejectReason::DeadlinePassed);
    engine.set(Readiness::Ready);
    assert_eq!(answer(other).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_urgent_request_displaces_another() {
    let mut displacing = config(2);
    displacing.displace = true;
    let (engine, mut service) = busy(displacing);
    let first = send(&service, job(0)).await;
    let second = send(&service, job(1)).await;
    // Without `poll_ready`, which would wait for a place.
    let urgent = tokio::spawn(service.call(job(2).urgent()));
    assert_eq!(why(second).await, RejectReason::Displaced);
    engine.set(Readiness::Ready);
    assert_eq!((answer(first).await, answer(urgent).await), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn without_displace_an_urgent_request_is_rejected() {
    let (engine, mut service) = busy(config(1).displace(false));
    let first = send(&service, job(0)).await;
    let urgent = tokio::spawn(service.call(job(1).urgent()));
    engine.set(Readiness::Ready);
    assert_eq!(answer(first).await, 0);
    assert_eq!(why(urgent).await, RejectReason::Full);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_over_its_bound_is_rejected() {
    let mut shared = config(8);
    shared.max_size_per_tenant = Some(1);
    let (engine, service) = busy(shared);
    let first = send(&service, job(0).of("a")).await;
    let second = send(&service, job(1).of("a")).await;
    let other = send(&service, job(2).of("b")).await;
    assert_eq!(why(second).await, RejectReason::TenantFull);
    engine.set(Readiness::Ready);
    assert_eq!((answer(first).await, answer(other).await), (0, 4));
}

#[tokio::test(start_paused = true)]
async fn a_request_over_the_batch_budget_is_rejected() {
    let (engine, service) = busy(config(8));
    let whole = send(&service, job(0).costs(10)).await;
    let more = send(&service, job(1).costs(11)).await;
    let too_large = TooLarge {
        cost: 11,
        budget: 10,
    };
    assert_eq!(why(more).await, RejectReason::Unservable(too_large));
    engine.set(Readiness::Ready);
    assert_eq!(answer(whole).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_no_wait_request_is_rejected() {
    let (_engine, service) = busy(config(8));
    let mut no_wait = job(0);
    no_wait.ticket = no_wait.ticket.no_wait();
    let rejected = send(&service, no_wait).await;
    assert_eq!(why(rejected).await, RejectReason::NotQueued);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_uses_up_only_its_own_reservation() {
    let (_engine, mut service) = busy(config(1));
    for number in 0..3 {
        service.ready().await.unwrap();
        let rejected = service.call(job(number).costs(11)).await;
        assert!(matches!(
            rejected,
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
