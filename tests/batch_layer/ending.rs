//! Where the task lives, and when it ends.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio::runtime::{Builder, Runtime};
use tower::Service as _;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// A call from inside a runtime, which need not run meanwhile.
fn call_in(
    runtime: &Runtime,
    service: &mut Service,
    job: impl FnOnce() -> Job,
) -> <Service as tower::Service<Job>>::Future {
    let _entered = runtime.enter();
    service.call(job())
}

fn paused() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn when_the_last_clone_and_the_last_request_have_gone() {
    let engine = Engine::by_hand();
    let service = service(&engine, 2, millis(50));
    let sent = [send(&service, job(0)).await, send(&service, job(1)).await];
    let waiting = send(&service, job(2)).await;
    assert!(engine.is_alive());
    drop(service);
    settle().await;
    assert!(!engine.is_alive());
    engine.finish();
    engine.finish();
    for (number, sent) in (0..).zip(sent) {
        assert_eq!(answer(sent).await, 2 * number);
    }
    assert_eq!(answer(waiting).await, 4);
}

#[tokio::test(start_paused = true)]
async fn though_the_inner_service_is_never_ready_again() {
    let engine = Engine::new();
    engine.is(Mood::Busy);
    let service = service(&engine, 1, millis(50));
    let sent = [send(&service, job(0)).await, send(&service, job(1)).await];
    drop(service);
    settle().await;
    assert!(engine.is_alive());
    for sent in sent {
        sent.abort();
    }
    settle().await;
    assert!(!engine.is_alive());
}

#[tokio::test(start_paused = true)]
async fn though_its_last_request_left_long_before_its_batch_was_due() {
    for max_delay in [Duration::from_secs(3600), Duration::MAX] {
        let engine = Engine::new();
        let service = service(&engine, 2, max_delay);
        send(&service, job(0)).await.abort();
        settle().await;
        assert!(engine.is_alive());
        drop(service);
        settle().await;
        assert!(!engine.is_alive(), "{max_delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_never_called_leaves_nothing() {
    let engine = Engine::new();
    let mut service = service(&engine, 1, millis(50));
    service.ready().await.unwrap();
    drop(service);
    assert!(!engine.is_alive());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_idle_ends_with_its_last_clone() {
    let engine = Engine::new();
    let service = service(&engine, 1, millis(50));
    assert_eq!(answer(send(&service, job(0)).await).await, 0);
    let clone = service.clone();
    drop(service);
    settle().await;
    assert!(engine.is_alive());
    drop(clone);
    settle().await;
    assert!(!engine.is_alive());
}

#[test]
fn those_who_wait_are_told_when_its_runtime_is_shut_down() {
    let (its, theirs) = (runtime(), runtime());
    let engine = its.block_on(async { Engine::by_hand() });
    engine.is(Mood::Busy);
    let mut service = layer(1, millis(5)).room(room(2)).layer(engine.service());
    let first = call_in(&its, &mut service, || job(0));
    let waiting: Vec<_> = (1..5)
        .map(|number| theirs.spawn(service.clone().oneshot(job(number))))
        .collect();
    theirs.block_on(settle());
    its.shutdown_background();
    theirs.block_on(async {
        assert!(matches!(first.await, Err(BatchError::Lost)));
        for waiting in waiting {
            assert!(matches!(waiting.await.unwrap(), Err(BatchError::Lost)));
        }
        let later = service.clone().oneshot(job(5)).await;
        assert!(matches!(later, Err(BatchError::Lost)));
    });
    assert!(!engine.is_alive());
}

#[test]
fn a_batch_is_lost_with_its_runtime() {
    let (its, theirs) = (runtime(), runtime());
    let engine = its.block_on(async { Engine::by_hand() });
    let mut service = service(&engine, 1, millis(5));
    let call = call_in(&its, &mut service, || job(0));
    while engine.running() == 0 {
        std::thread::yield_now();
    }
    its.shutdown_background();
    let lost = theirs.block_on(call);
    assert!(matches!(lost, Err(BatchError::Lost)));
}

#[test]
fn the_first_call_needs_a_runtime_and_holds_nothing_without() {
    let engine = Engine::new();
    let mut service = layer(1, millis(5)).room(room(1)).layer(engine.service());
    let call = AssertUnwindSafe(|| service.call(job(0)));
    assert!(catch_unwind(call).is_err());
    paused().block_on(async {
        service.ready().await.unwrap();
        assert_eq!(service.call(job(1)).await.unwrap(), 2);
    });
}

#[test]
fn later_calls_need_none() {
    let engine = Engine::new();
    let its = runtime();
    let mut service = service(&engine, 2, Duration::MAX);
    let first = call_in(&its, &mut service, || job(0));
    let second = service.call(job(1));
    assert_eq!(its.block_on(second).unwrap(), 2);
    assert_eq!(its.block_on(first).unwrap(), 0);
}

#[test]
fn waits_end_in_time_whichever_runtime_their_callers_are_in() {
    let its = paused();
    let engine = its.block_on(async { Engine::new() });
    engine.is(Mood::Busy);
    let mut service = layer(1, millis(5)).room(room(8)).layer(engine.service());
    let first = call_in(&its, &mut service, || job(0));
    its.block_on(settle());
    let mut late = Vec::new();
    let theirs = paused();
    late.push(call_in(&theirs, &mut service, || {
        job(1).within(millis(100))
    }));
    drop(theirs);
    late.push(service.call(job(2).within(millis(100))));
    its.block_on(async {
        for late in late {
            let why = tokio::time::timeout(millis(200), late).await.unwrap();
            let why = why.unwrap_err();
            assert!(matches!(
                why,
                BatchError::Rejected(RejectReason::DeadlinePassed)
            ));
        }
        engine.is(Mood::Ready);
        assert_eq!(first.await.unwrap(), 0);
    });
}
