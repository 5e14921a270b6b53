//! Cancellation and deadlines.

use std::sync::Arc;

use crate::reason::{DEADLINE_EXCEEDED, REQUEST_CANCELED};
use crate::{RequestStatus, Stop, StoreConfig};

use super::*;

/// A waiting request is cancelled at once.
pub async fn a_waiting_request_is_cancelled_at_once<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let info = store.cancel(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Canceled);
    assert_eq!(info.reason.as_deref(), Some(REQUEST_CANCELED));
    assert!(info.ended.unwrap() >= info.created);
    assert_eq!(info.attempts, 0);
    assert!(store.fetch("", 1).await.unwrap().is_empty());
    store.ended(id).await.unwrap();
}

/// A running request is stopped by its cancellation.
pub async fn a_running_request_is_stopped_by_its_cancellation<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    store.called(&fetched.lease).await.unwrap();
    let (lease, other) = (fetched.lease.clone(), Arc::clone(&store));
    let stopped = tokio::spawn(async move { other.stopped(&lease).await });
    tokio::task::yield_now().await;
    let info = store.cancel(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Canceled);
    assert_eq!(stopped.await.unwrap().unwrap(), Stop::Canceled);
    assert!(!finish(&*store, fetched, ok("late")).await);
    assert_eq!(status(&*store, id).await, RequestStatus::Canceled);
    assert_eq!(store.response(id).await.unwrap(), None);
}

/// An ended request is not cancelled.
pub async fn an_ended_request_is_not_cancelled<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    assert!(finish(&*store, fetched, ok("")).await);
    let before = get(&*store, id).await;
    assert_eq!(store.cancel(id).await.unwrap(), Some(before));
}

/// A delayed request is cancelled.
pub async fn a_delayed_request_is_cancelled<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let delayed = request_with(|request| request.delay = Some(H::UNIT));
    let id = enqueue(&*store, delayed).await.id;
    let info = store.cancel(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Canceled);
    pass::<H>(3).await;
    assert!(store.fetch("", 1).await.unwrap().is_empty());
}

/// A request that never began is aborted at its deadline.
pub async fn a_request_that_never_began_is_aborted_at_its_deadline<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let waiting = request_with(|request| request.cancel_after = Some(H::UNIT));
    let delayed = request_with(|request| {
        request.cancel_after = Some(H::UNIT);
        request.delay = Some(H::UNIT * 100);
    });
    for request in [waiting, delayed] {
        let id = enqueue(&*store, request).await.id;
        store.ended(id).await.unwrap();
        let info = get(&*store, id).await;
        assert_eq!(info.status, RequestStatus::Aborted);
        assert_eq!(info.reason.as_deref(), Some(DEADLINE_EXCEEDED));
        assert!(info.ended >= info.deadline);
    }
    assert!(store.fetch("", 1).await.unwrap().is_empty());
    // One that comes too late already never begins.
    let late = request_with(|request| request.cancel_after = Some(std::time::Duration::ZERO));
    let id = enqueue(&*store, late).await.id;
    store.ended(id).await.unwrap();
    assert_eq!(status(&*store, id).await, RequestStatus::Aborted);
}

/// A running request is stopped at its deadline.
pub async fn a_running_request_is_stopped_at_its_deadline<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let request = request_with(|request| request.cancel_after = Some(H::UNIT * 2));
    let id = enqueue(&*store, request).await.id;
    let fetched = fetch_one(&*store).await;
    assert_eq!(fetched.deadline(), fetched.info.deadline);
    let stop = store.stopped(&fetched.lease).await.unwrap();
    assert_eq!(stop, Stop::Canceled);
    let info = get(&*store, id).await;
    assert_eq!(info.status, RequestStatus::Canceled);
    assert_eq!(info.reason.as_deref(), Some(DEADLINE_EXCEEDED));
    assert!(!finish(&*store, fetched, ok("late")).await);
}

/// A deadline that was met changes nothing.
pub async fn a_deadline_that_was_met_changes_nothing<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let mut units = 2;
    let (id, before) = loop {
        let request = request_with(|request| request.cancel_after = Some(H::UNIT * units));
        let id = enqueue(&*store, request).await.id;
        if let Some(fetched) = store.fetch("", 1).await.unwrap().pop()
            && finish(&*store, fetched, ok("in time")).await
        {
            break (id, get(&*store, id).await);
        }
        // The deadline passed before, on a busy machine.
        units *= 2;
    };
    pass::<H>(2 * units).await;
    assert_eq!(get(&*store, id).await, before);
}

/// An attempt that is over is told to stop.
pub async fn an_attempt_that_is_over_is_told_to_stop<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    let lease = fetched.lease.clone();
    store.cancel(id).await.unwrap();
    // It comes too late for the cancellation itself.
    assert_eq!(store.stopped(&lease).await.unwrap(), Stop::Canceled);
}
