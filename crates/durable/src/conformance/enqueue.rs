//! Requests come in: once, and within bounds.

use crate::{Enqueued, RequestId, RequestStatus, StoreConfig, StoreError};

use super::*;

/// A request is stored as it was given.
pub async fn a_request_is_stored_as_it_was_given<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let request = request_with(|request| {
        request.queue = "model/a b".into();
        request.level = 1;
        request.tenant = b"team \xff".to_vec();
        request.cancel_after = Some(H::UNIT * 1_000);
        request.is_listed = false;
    });
    let info = enqueue(&*store, request.clone()).await;
    assert_eq!(info.id, request.id);
    assert_eq!((info.queue.as_str(), info.level), ("model/a b", 1));
    assert_eq!(info.tenant, b"team \xff");
    assert_eq!((info.status, info.attempts), (RequestStatus::Queued, 0));
    assert_eq!(info.deadline, Some(info.created + H::UNIT * 1_000));
    assert_eq!(
        (info.started, info.ended, info.reason.as_ref()),
        (None, None, None)
    );
    assert!(!info.is_listed);
    assert_eq!(get(&*store, request.id).await, info);
    let body = store.request(request.id).await.unwrap();
    assert_eq!(body, Some(request.request));
    assert_eq!(store.response(request.id).await.unwrap(), None);
}

/// The same name is stored once.
pub async fn the_same_name_is_stored_once<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let request = request();
    let info = enqueue(&*store, request.clone()).await;
    let again = store.enqueue(request.clone()).await.unwrap();
    assert_eq!(again, Enqueued::Known(info));
    assert_eq!(store.fetch("", 10).await.unwrap().len(), 1);
    // Also at once, from many sides.
    let request = super::request();
    let all = (0..8).map(|_| store.enqueue(request.clone()));
    let all = futures_util::future::join_all(all).await;
    let is_new = |enqueued: &&Result<Enqueued, _>| matches!(enqueued, Ok(Enqueued::New(_)));
    assert_eq!(all.iter().filter(is_new).count(), 1);
    assert!(all.iter().all(Result::is_ok));
}

/// A key of the same request returns it.
pub async fn a_key_of_the_same_request_returns_it<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let with_key = || request_with(|request| request.idempotency = key("k", 1));
    let first = enqueue(&*store, with_key()).await;
    let known = store.enqueue(with_key()).await.unwrap();
    assert_eq!(known, Enqueued::Known(first.clone()));
    let fetched = fetch_one(&*store).await;
    assert!(finish(&*store, fetched, responded(503, "no")).await);
    // Each outcome is kept, whatever it is.
    let known = store.enqueue(with_key()).await.unwrap();
    assert_eq!(known.info().id, first.id);
    assert_eq!(known.info().status, RequestStatus::Failed);
}

/// A key of another request is refused.
pub async fn a_key_of_another_request_is_refused<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    enqueue(
        &*store,
        request_with(|request| request.idempotency = key("k", 1)),
    )
    .await;
    let other = request_with(|request| request.idempotency = key("k", 2));
    let id = other.id;
    let refused = store.enqueue(other).await;
    assert_eq!(refused, Err(StoreError::IdempotencyKeyReused));
    assert_eq!(store.get(id).await.unwrap(), None);
}

/// A key is its tenants alone.
pub async fn a_key_is_its_tenants_alone<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    for tenant in ["", "a", "b"] {
        let request = request_with(|request| {
            request.tenant = tenant.into();
            request.idempotency = key("k", tenant.len() as u8);
        });
        enqueue(&*store, request).await;
    }
    assert_eq!(store.fetch("", 10).await.unwrap().len(), 3);
}

/// A key is kept until its request is forgotten.
pub async fn a_key_is_kept_until_its_request_is_forgotten<H: Harness>() {
    let harness = H::open(StoreConfig::default().retention(H::UNIT * 3)).await;
    let store = harness.store();
    let with_key =
        |fingerprint| request_with(|request| request.idempotency = key("k", fingerprint));
    let first = enqueue(&*store, with_key(1)).await;
    // It counts from the end.
    pass::<H>(4).await;
    let known = store.enqueue(with_key(1)).await.unwrap();
    assert_eq!(known.info().id, first.id);
    store.cancel(first.id).await.unwrap();
    eventually::<H>(async || store.get(first.id).await.unwrap().is_none()).await;
    let other = enqueue(&*store, with_key(2)).await;
    assert_ne!(other.id, first.id);
}

/// A full store refuses until one ends.
pub async fn a_full_store_refuses_until_one_ends<H: Harness>() {
    let harness = H::open(StoreConfig::default().max_size(2)).await;
    let store = harness.store();
    let first = enqueue(&*store, request()).await;
    enqueue(&*store, request_with(|request| request.queue = "b".into())).await;
    let full = Err(StoreError::QueueFull { max_size: 2 });
    assert_eq!(store.enqueue(request()).await, full);
    // What runs counts, too.
    let running = fetch_one(&*store).await;
    assert_eq!(running.lease.id(), first.id);
    assert_eq!(store.enqueue(request()).await, full);
    assert!(finish(&*store, running, ok("")).await);
    enqueue(&*store, request()).await;
    assert_eq!(store.enqueue(request()).await, full);
}

/// A full tenant refuses only its own.
pub async fn a_full_tenant_refuses_only_its_own<H: Harness>() {
    let harness = H::open(StoreConfig::default().max_size_per_tenant(1)).await;
    let store = harness.store();
    let of = |tenant: &str| request_with(|request| request.tenant = tenant.into());
    let first = enqueue(&*store, of("a")).await;
    let full = Err(StoreError::TenantQueueFull { max_size: 1 });
    assert_eq!(store.enqueue(of("a")).await, full);
    enqueue(&*store, of("b")).await;
    store.cancel(first.id).await.unwrap();
    enqueue(&*store, of("a")).await;
}

/// A known request is returned by a full store.
pub async fn a_known_request_is_returned_by_a_full_store<H: Harness>() {
    let harness = H::open(StoreConfig::default().max_size(1)).await;
    let store = harness.store();
    let request = request_with(|request| request.idempotency = key("k", 1));
    let info = enqueue(&*store, request.clone()).await;
    let known = Ok(Enqueued::Known(info));
    assert_eq!(store.enqueue(request.clone()).await, known);
    let same_key = request_with(|other| other.idempotency = key("k", 1));
    assert_eq!(store.enqueue(same_key).await, known);
}

/// A known request is found without storing it.
pub async fn a_known_request_is_found_without_storing_it<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let with_key =
        |fingerprint| request_with(|request| request.idempotency = key("k", fingerprint));
    let request = with_key(1);
    assert_eq!(store.known(&request).await, Ok(None));
    assert_eq!(store.get(request.id).await, Ok(None));
    let info = enqueue(&*store, request.clone()).await;
    assert_eq!(store.known(&request).await, Ok(Some(info.clone())));
    assert_eq!(store.known(&with_key(1)).await, Ok(Some(info)));
    let other = store.known(&with_key(2)).await;
    assert_eq!(other, Err(StoreError::IdempotencyKeyReused));
    assert_eq!(run_all(&*store).await, [request.id]);
}

/// An unknown request has nothing.
pub async fn an_unknown_request_has_nothing<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = RequestId::random().unwrap();
    assert_eq!(store.get(id).await.unwrap(), None);
    assert_eq!(store.response(id).await.unwrap(), None);
    assert_eq!(store.cancel(id).await.unwrap(), None);
    store.ended(id).await.unwrap();
    if let Some(operate) = store.operate() {
        assert_eq!(operate.position(id).await.unwrap(), None);
        assert_eq!(operate.retry(id).await.unwrap(), None);
    }
    if let Some(drain) = store.drain() {
        assert_eq!(drain.request(id).await.unwrap(), None);
    }
    if let Some(streams) = store.streams() {
        assert_eq!(streams.chunks(id, 0).await.unwrap(), None);
    }
    if let Some(webhooks) = store.webhooks() {
        webhooks.settle_webhook(id, 0, None).await.unwrap();
    }
    assert!(store.fetch("nowhere", 10).await.unwrap().is_empty());
}
