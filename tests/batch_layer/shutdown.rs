//! Tests of the task that sends batches: its runtime, and when it ends.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio::runtime::{Builder, Runtime};
use tower::Service as _;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// A call from inside a runtime that need not be driven.
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
async fn the_task_ends_after_the_last_clone_and_request() {
    let engine = Engine::manual();
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
async fn the_task_ends_beside_a_service_never_ready_again() {
    let engine = Engine::new();
    engine.set(Readiness::Busy);
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
async fn the_task_ends_after_its_last_request_left() {
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
async fn a_service_never_called_starts_no_task() {
    let engine = Engine::new();
    let mut service = service(&engine, 1, millis(50));
    service.ready().await.unwrap();
    drop(service);
    assert!(!engine.is_alive());
}

#[tokio::test(start_paused = true)]
async fn an_idle_service_ends_with_its_last_clone() {
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
fn a_runtime_shutdown_fails_all_waiting_requests() {
    let (its_runtime, other) = (runtime(), runtime());
    let engine = its_runtime.block_on(async { Engine::manual() });
    engine.set(Readiness::Busy);
    let mut service = layer(1, millis(5)).room(config(2)).layer(engine.service());
    let first = call_in(&its_runtime, &mut service, || job(0));
    let waiting: Vec<_> = (1..5)
        .map(|number| other.spawn(service.clone().oneshot(job(number))))
        .collect();
    other.block_on(settle());
    its_runtime.shutdown_background();
    other.block_on(async {
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
fn a_runtime_shutdown_loses_its_batches() {
    let (its_runtime, other) = (runtime(), runtime());
    let engine = its_runtime.block_on(async { Engine::manual() });
    let mut service = service(&engine, 1, millis(5));
    let call = call_in(&its_runtime, &mut service, || job(0));
    while engine.running() == 0 {
        std::thread::yield_now();
    }
    its_runtime.shutdown_background();
    let lost = other.block_on(call);
    assert!(matches!(lost, Err(BatchError::Lost)));
}

#[test]
fn a_call_outside_a_runtime_keeps_no_place() {
    let engine = Engine::new();
    let mut service = layer(1, millis(5)).room(config(1)).layer(engine.service());
    let call = AssertUnwindSafe(|| service.call(job(0)));
    assert!(catch_unwind(call).is_err());
    paused().block_on(async {
        service.ready().await.unwrap();
        assert_eq!(service.call(job(1)).await.unwrap(), 2);
    });
}

#[test]
fn later_calls_need_no_runtime() {
    let engine = Engine::new();
    let its_runtime = runtime();
    let mut service = service(&engine, 2, Duration::MAX);
    let first = call_in(&its_runtime, &mut service, || job(0));
    let second = service.call(job(1));
    assert_eq!(its_runtime.block_on(second).unwrap(), 2);
    assert_eq!(its_runtime.block_on(first).unwrap(), 0);
}

#[test]
fn waits_end_on_time_for_callers_in_any_runtime() {
    let its_runtime = paused();
    let engine = its_runtime.block_on(async { Engine::new() });
    engine.set(Readiness::Busy);
    let mut service = layer(1, millis(5)).room(config(8)).layer(engine.service());
    let first = call_in(&its_runtime, &mut service, || job(0));
    its_runtime.block_on(settle());
    let mut late = Vec::new();
    let other = paused();
    late.push(call_in(&other, &mut service, || job(1).within(millis(100))));
    drop(other);
    late.push(service.call(job(2).within(millis(100))));
    its_runtime.block_on(async {
        for late in late {
            let why = tokio::time::timeout(millis(200), late).await.unwrap();
            let why = why.unwrap_err();
            assert!(matches!(
                why,
                BatchError::Rejected(RejectReason::DeadlinePassed)
            ));
        }
        engine.set(Readiness::Ready);
        assert_eq!(first.await.unwrap(), 0);
    });
}
