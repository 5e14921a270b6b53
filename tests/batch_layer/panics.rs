//! Tests of panics: they fail the request or the batch that they concern, and no other.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Wake, Waker};

use super::*;
use engine::Numbered;
use tower::Service as _;
use tower_triage::batch::TooLarge;
use tower_triage::queue::ClassifyContext;
use tower_triage::{Priority, Ticket};

/// A request that panics when it is dropped, if it is armed.
struct Bomb {
    number: u32,
    armed: bool,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.armed, "a bomb is dropped");
    }
}

impl Numbered for Bomb {
    fn number(mut self) -> u32 {
        self.armed = false;
        self.number
    }
}

fn bomb(number: u32) -> Bomb {
    let armed = true;
    Bomb { number, armed }
}

fn harmless(number: u32) -> Bomb {
    let armed = false;
    Bomb { number, armed }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_call_loses_one_batch() {
    let explosive = service_fn(|batch: Vec<u32>| {
        assert!(!batch.contains(&0), "the engine panics");
        async move { Ok::<_, &str>(batch) }
    });
    let inner = tower::limit::ConcurrencyLimit::new(explosive, 1);
    let service = BatchLayer::new(2, millis(5)).layer(inner);
    for _ in 0..3 {
        let lost = [0, 1].map(|n| tokio::spawn(service.clone().oneshot(n)));
        for lost in lost {
            assert!(matches!(lost.await.unwrap(), Err(BatchError::Lost)));
        }
        let next = [2, 3].map(|n| tokio::spawn(service.clone().oneshot(n)));
        for (n, next) in (2..).zip(next) {
            assert_eq!(next.await.unwrap().unwrap(), n);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_future_loses_one_batch() {
    let explosive = service_fn(|batch: Vec<u32>| async move {
        tokio::task::yield_now().await;
        assert!(!batch.contains(&0), "the engine panics");
        Ok::<_, &str>(batch)
    });
    let inner = tower::limit::ConcurrencyLimit::new(explosive, 1);
    let service = BatchLayer::new(2, millis(5)).layer(inner);
    let sent = [0, 1, 2, 3].map(|n| tokio::spawn(service.clone().oneshot(n)));
    for (n, sent) in (0..).zip(sent) {
        match sent.await.unwrap() {
            Err(BatchError::Lost) => assert!(n < 2),
            Ok(answer) => assert!(n >= 2 && answer == n),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_poll_ready_loses_waiting_requests() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let service = layer(1, millis(5)).room(config(2)).layer(engine.service());
    let mut sent = Vec::new();
    for number in 0..3 {
        sent.push(send(&service, job(number)).await);
    }
    engine.set(Readiness::Panics);
    for sent in sent {
        assert!(matches!(sent.await.unwrap(), Err(BatchError::Lost)));
    }
    let later = send(&service, job(4)).await.await.unwrap();
    assert!(matches!(later, Err(BatchError::Lost)));
    engine.set(Readiness::Ready);
    assert_eq!(answer(send(&service, job(5)).await).await, 10);
}

#[tokio::test(start_paused = true)]
async fn one_panic_in_poll_ready_loses_one_batch() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let service = layer(2, millis(5)).layer(engine.service());
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(send(&service, job(number)).await);
    }
    engine.set(Readiness::PanicsOnce);
    for (number, sent) in (0..).zip(sent) {
        match sent.await.unwrap() {
            Err(BatchError::Lost) => assert!(number < 2, "{number}"),
            Ok(answer) => assert!(number >= 2 && answer == 2 * number),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(engine.batches(), [[2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn a_poll_ready_panic_spares_later_requests() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let service = layer(2, millis(5)).layer(engine.service());
    let gone = [0, 1].map(|n| tokio::spawn(service.clone().oneshot(job(n))));
    settle().await;
    gone.iter().for_each(|gone| gone.abort());
    settle().await;
    let later = send(&service, job(2)).await;
    engine.set(Readiness::PanicsOnce);
    assert_eq!(answer(later).await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_panic_dropping_an_abandoned_batch_is_caught() {
    struct Panics(bool);
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(!self.0, "the batch panics when it is dropped");
        }
    }
    let explosive = service_fn(|batch: Vec<u32>| {
        let panics = Panics(batch.contains(&0));
        async move {
            tokio::time::sleep(millis(100)).await;
            drop(panics);
            Ok::<_, &str>(batch)
        }
    });
    let inner = tower::limit::ConcurrencyLimit::new(explosive, 1);
    let service = BatchLayer::new(2, millis(5)).layer(inner);
    let gone = [0, 1].map(|n| tokio::spawn(service.clone().oneshot(n)));
    settle().await;
    gone.iter().for_each(|gone| gone.abort());
    let next = [2, 3].map(|n| tokio::spawn(service.clone().oneshot(n)));
    for (n, next) in (2..).zip(next) {
        assert_eq!(next.await.unwrap().unwrap(), n);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_classifier_or_cost_concerns_its_caller() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let careful = |job: &Job, _: &ClassifyContext<'_>| {
        assert!(job.number != 666, "the classifier panics");
        job.ticket.clone()
    };
    let mut service = BatchLayer::new(8, millis(5))
        .room(config(1))
        .classify(careful)
        .cost(10, |job: &Job| {
            assert!(job.number != 667, "the cost panics");
            job.cost
        })
        .layer(engine.service());
    for number in [666, 667, 666, 667] {
        let call = std::panic::AssertUnwindSafe(|| service.call(job(number)));
        assert!(std::panic::catch_unwind(call).is_err());
    }
    for number in [666, 667, 666, 667] {
        let unlucky = tokio::spawn(service.clone().oneshot(job(number)));
        assert!(unlucky.await.unwrap_err().is_panic());
    }
    let waiting = tokio::spawn(service.clone().oneshot(job(0)));
    settle().await;
    let full = service.call(job(1)).await;
    assert!(matches!(
        full,
        Err(BatchError::Rejected(RejectReason::Full))
    ));
    engine.set(Readiness::Ready);
    assert_eq!(waiting.await.unwrap().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_dropping_an_expired_request_is_caught() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let mut limited = config(8);
    limited.max_wait = Some(millis(100));
    let layer = BatchLayer::new(8, millis(5)).room(limited);
    let service = layer.layer(engine.service());
    // The timer rejects one, and then another.
    for number in 0..2 {
        let late = tokio::spawn(service.clone().oneshot(bomb(number)));
        assert_rejected(late.await.unwrap(), RejectReason::TimedOut);
    }
    let next = tokio::spawn(service.clone().oneshot(harmless(2)));
    settle().await;
    engine.set(Readiness::Ready);
    assert_eq!(next.await.unwrap().unwrap(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_panic_dropping_an_expired_request_spares_the_batch() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let mut limited = config(8);
    limited.max_wait = Some(millis(100));
    let layer = BatchLayer::new(8, millis(5)).room(limited);
    let mut service = layer.layer(engine.service());
    let late = service.call(bomb(0));
    settle().await;
    advance(millis(50)).await;
    let next = service.call(harmless(1));
    // The engine becomes ready at the instant at which the wait ends, before the timer is polled.
    engine.set(Readiness::Ready);
    advance(millis(50)).await;
    assert_rejected(late.await, RejectReason::TimedOut);
    assert_eq!(next.await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_panic_dropping_a_displaced_request_is_caught() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let mut displacing = config(1);
    displacing.displace = true;
    let mut service = BatchLayer::new(8, millis(5))
        .room(displacing)
        .classify(|bomb: &Bomb, context| {
            Ticket::new(Priority(u8::from(bomb.armed)), context.arrival())
        })
        .layer(engine.service());
    let unlucky = tokio::spawn(service.call(bomb(0)));
    settle().await;
    let urgent = service.call(harmless(1));
    assert_rejected(unlucky.await.unwrap(), RejectReason::Displaced);
    engine.set(Readiness::Ready);
    assert_eq!(urgent.await.unwrap(), 2);
    service.ready().await.unwrap();
}

fn assert_rejected(answer: Result<u32, Error>, expected: RejectReason<TooLarge>) {
    match answer {
        Err(BatchError::Rejected(why)) => assert_eq!(why, expected),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_dropping_failed_requests_is_caught() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
    let service = BatchLayer::new(8, millis(5)).layer(engine.service());
    let sent: Vec<_> = (0..4)
        .map(|n| tokio::spawn(service.clone().oneshot(bomb(n))))
        .collect();
    advance(millis(5)).await;
    settle().await;
    engine.set(Readiness::Broken);
    for sent in sent {
        match sent.await.unwrap() {
            Err(BatchError::Inner(why)) => assert_eq!(*why, "broken"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_dropping_an_unused_response_is_caught() {
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let inner = {
        let go = Arc::clone(&go);
        service_fn(move |batch: Vec<u32>| {
            let go = Arc::clone(&go);
            async move {
                go.acquire().await.unwrap().forget();
                Ok::<_, &str>(batch.into_iter().map(bomb).collect::<Vec<_>>())
            }
        })
    };
    let service = BatchLayer::new(4, millis(5)).layer(inner);
    let mut sent: Vec<_> = (0..4)
        .map(|n| tokio::spawn(service.clone().oneshot(n)))
        .collect();
    settle().await;
    for gone in sent.drain(..2) {
        gone.abort();
    }
    settle().await;
    go.add_permits(1);
    for (n, sent) in (2..).zip(sent) {
        let mut answer = sent.await.unwrap().unwrap();
        answer.armed = false;
        assert_eq!(answer.number, n);
    }
}

/// A waker that panics when it is woken.
fn panicking_waker() -> Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker panics");
        }
    }
    Waker::from(Arc::new(Panics))
}

#[tokio::test(start_paused = true)]
async fn a_panicking_waker_costs_no_other_caller_its_answer() {
    for readiness in [Readiness::Ready, Readiness::PanicsOnce, Readiness::Broken] {
        let engine = Engine::new();
        engine.set(Readiness::Busy);
        let mut service = service(&engine, 2, millis(5));
        let mut first = service.call(job(0));
        let polled = Pin::new(&mut first).poll(&mut Context::from_waker(&panicking_waker()));
        assert!(polled.is_pending());
        let other = send(&service, job(1)).await;
        engine.set(readiness);
        let is_as_expected = |answer| match readiness {
            Readiness::Ready => matches!(answer, Ok(0 | 2)),
            Readiness::Broken => matches!(answer, Err(BatchError::Inner(_))),
            _ => matches!(answer, Err(BatchError::Lost)),
        };
        assert!(is_as_expected(other.await.unwrap()), "{readiness:?}");
        assert!(is_as_expected(first.await), "{readiness:?}");
        if readiness != Readiness::Broken {
            assert_eq!(answer(send(&service, job(2)).await).await, 4);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_waker_in_a_lost_batch_stops_no_other() {
    let explosive = service_fn(|batch: Vec<u32>| {
        assert!(!batch.contains(&0), "the engine panics");
        async move { Ok::<_, &str>(batch) }
    });
    let mut service = BatchLayer::new(1, millis(5)).layer(explosive);
    let mut first = service.call(0);
    let polled = Pin::new(&mut first).poll(&mut Context::from_waker(&panicking_waker()));
    assert!(polled.is_pending());
    assert!(matches!(service.call(1).await, Ok(1)));
    assert!(matches!(first.await, Err(BatchError::Lost)));
}
