//! Workers take requests, and say how they ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::{Outcome, RequestStatus, Stop, StoreConfig};

use super::*;

/// An outcome is kept.
pub async fn an_outcome_is_kept<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    assert_eq!(status(&*store, id).await, RequestStatus::Starting);
    assert!(finish(&*store, fetched, responded(201, "made")).await);
    let info = get(&*store, id).await;
    assert_eq!(info.status, RequestStatus::Succeeded);
    assert_eq!((info.response_status, info.reason), (Some(201), None));
    assert!(info.ended.unwrap() >= info.started.unwrap());
    assert_eq!(store.response(id).await.unwrap().unwrap(), "made");
}

/// A status of 400 and more has failed.
pub async fn a_status_of_400_and_more_has_failed<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    for (code, expected) in [
        (399, RequestStatus::Succeeded),
        (400, RequestStatus::Failed),
        (503, RequestStatus::Failed),
    ] {
        let id = enqueue(&*store, request()).await.id;
        let fetched = fetch_one(&*store).await;
        assert!(finish(&*store, fetched, responded(code, "answer")).await);
        let info = get(&*store, id).await;
        assert_eq!((info.status, info.response_status), (expected, Some(code)));
        assert_eq!(info.reason.is_some(), expected == RequestStatus::Failed);
        assert_eq!(store.response(id).await.unwrap().unwrap(), "answer");
    }
}

/// A failure without a response has its reason.
pub async fn a_failure_without_a_response_has_its_reason<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    assert!(finish(&*store, fetched, failed("attempt_timeout")).await);
    let info = get(&*store, id).await;
    assert_eq!(info.status, RequestStatus::Failed);
    assert_eq!(info.reason.as_deref(), Some("attempt_timeout"));
    assert_eq!(info.response_status, None);
    assert_eq!(store.response(id).await.unwrap(), None);
}

/// A called request is processing.
pub async fn a_called_request_is_processing<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    store.called(&fetched.lease).await.unwrap();
    let info = get(&*store, id).await;
    assert_eq!((info.status, info.attempts), (RequestStatus::Processing, 1));
    assert!(info.started.unwrap() >= info.created);
    assert!(finish(&*store, fetched, ok("")).await);
}

/// The first outcome stands.
pub async fn the_first_outcome_stands<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    assert!(finish(&*store, fetched.clone(), ok("first")).await);
    let before = get(&*store, id).await;
    assert!(!finish(&*store, fetched.clone(), responded(500, "second")).await);
    assert!(!finish(&*store, fetched.clone(), again(Duration::ZERO)).await);
    store.called(&fetched.lease).await.unwrap();
    assert_eq!(get(&*store, id).await, before);
    assert_eq!(store.response(id).await.unwrap().unwrap(), "first");
}

/// An outcome of an old attempt has no effect.
pub async fn an_outcome_of_an_old_attempt_has_no_effect<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let old = fetch_one(&*store).await;
    assert!(finish(&*store, old.clone(), again(Duration::ZERO)).await);
    let new = fetch_one(&*store).await;
    assert_eq!((new.lease.id(), new.lease.attempt()), (id, 2));
    assert!(!finish(&*store, old.clone(), ok("old")).await);
    store.called(&old.lease).await.unwrap();
    assert_eq!(store.stopped(&old.lease).await.unwrap(), Stop::Lost);
    assert_eq!(status(&*store, id).await, RequestStatus::Starting);
    assert!(finish(&*store, new, ok("new")).await);
    assert_eq!(store.response(id).await.unwrap().unwrap(), "new");
}

/// A retried attempt begins again.
pub async fn a_retried_attempt_begins_again<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let first = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    enqueue(&*store, request()).await;
    assert!(finish(&*store, fetched, again(Duration::ZERO)).await);
    let info = get(&*store, first).await;
    assert_eq!((info.status, info.attempts), (RequestStatus::Queued, 1));
    let order = run_all(&*store).await;
    assert_eq!(order.len(), 2);
    if H::IS_EXACT {
        assert_eq!(order[0], first, "it keeps its place");
    }
    assert_eq!(get(&*store, first).await.attempts, 2);
}

/// A retried attempt waits for its backoff.
pub async fn a_retried_attempt_waits_for_its_backoff<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    assert!(finish(&*store, fetched, again(H::UNIT * 3)).await);
    let begin = get(&*store, id).await.not_before.unwrap();
    assert!(store.fetch("", 1).await.unwrap().is_empty());
    let fetched = fetch_next(&*store).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 2));
    assert!(fetched.info.started.unwrap() >= begin);
}

/// An attempt that does not count is not counted.
pub async fn an_attempt_that_does_not_count_is_not_counted<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    let outcome = Outcome::Retry {
        after: Duration::ZERO,
        counts: false,
    };
    assert!(finish(&*store, fetched, outcome).await);
    let info = get(&*store, id).await;
    assert_eq!((info.status, info.attempts), (RequestStatus::Queued, 0));
    assert_eq!(fetch_one(&*store).await.lease.attempt(), 1);
}

/// A failed request is retried by hand.
pub async fn a_failed_request_is_retried_by_hand<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let request = request_with(|request| request.cancel_after = Some(H::UNIT * 100));
    let id = enqueue(&*store, request).await.id;
    let fetched = fetch_one(&*store).await;
    assert!(finish(&*store, fetched, responded(500, "no")).await);
    let info = store.retry(id).await.unwrap().unwrap();
    assert_eq!((info.status, info.attempts), (RequestStatus::Queued, 0));
    assert_eq!(
        (info.deadline, info.ended, info.reason.as_ref()),
        (None, None, None)
    );
    assert_eq!((info.started, info.response_status), (None, None));
    assert_eq!(get(&*store, id).await, info);
    assert_eq!(store.response(id).await.unwrap(), None);
    let fetched = fetch_one(&*store).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 1));
    assert!(finish(&*store, fetched, ok("yes")).await);
    assert_eq!(store.response(id).await.unwrap().unwrap(), "yes");
}

/// A full store takes back a request that is retried by hand.
pub async fn a_full_store_takes_back_a_request_that_is_retried_by_hand<H: Harness>() {
    let config = StoreConfig::default().max_size(1).max_size_per_tenant(1);
    let harness = H::open(config).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    assert!(finish(&*store, fetched, responded(500, "no")).await);
    let other = enqueue(&*store, request()).await.id;
    let info = store.retry(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Queued);
    // It counts again: there is room for a new request only after both have ended.
    store.cancel(other).await.unwrap();
    assert!(store.enqueue(request()).await.is_err());
    assert_eq!(run_all(&*store).await, [id]);
    enqueue(&*store, request()).await;
}

/// Only a failed request is retried by hand.
pub async fn only_a_failed_request_is_retried_by_hand<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    for expected in [
        RequestStatus::Queued,
        RequestStatus::Starting,
        RequestStatus::Succeeded,
    ] {
        let before = get(&*store, id).await;
        assert_eq!(before.status, expected);
        assert_eq!(store.retry(id).await.unwrap(), Some(before));
        match expected {
            RequestStatus::Queued => {
                fetch_one(&*store).await;
            }
            RequestStatus::Starting => {
                store.cancel(id).await.unwrap();
                let canceled = store.retry(id).await.unwrap().unwrap();
                assert_eq!(canceled.status, RequestStatus::Canceled);
                return;
            }
            _ => {}
        }
    }
}

/// Many workers never take the same request.
pub async fn many_workers_never_take_the_same_request<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    for _ in 0..60 {
        enqueue(&*store, request()).await;
    }
    let workers = (0..6).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                let fetched = store.fetch("", 3).await.unwrap();
                if fetched.is_empty() {
                    return taken;
                }
                for fetched in fetched {
                    taken.push(fetched.lease.id());
                    assert!(finish(&*store, fetched, ok("")).await);
                }
            }
        })
    });
    let workers = futures_util::future::join_all(workers).await;
    let taken: Vec<_> = workers.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(taken.len(), 60);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 60);
}
