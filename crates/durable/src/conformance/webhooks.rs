//! Webhooks of ended requests.

use std::time::Duration;

use crate::{NewRequest, RequestId, RequestStatus, StoreConfig};

use super::*;

fn with_webhook() -> NewRequest {
    request_with(|request| request.webhook = Some("https://example.com/hook".into()))
}

/// A webhook is due at the end.
pub async fn a_webhook_is_due_at_the_end<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    enqueue(&*store, request()).await;
    let id = enqueue(&*store, with_webhook()).await.id;
    assert!(store.due_webhooks(10).await.unwrap().is_empty());
    assert_eq!(run_all(&*store).await.len(), 2);
    let due = store.due_webhooks(10).await.unwrap();
    assert_eq!(due.len(), 1);
    assert_eq!((due[0].info.id, due[0].tries), (id, 0));
    assert_eq!(due[0].info.status, RequestStatus::Succeeded);
    assert_eq!(due[0].url, "https://example.com/hook");
    assert!(store.due_webhooks(10).await.unwrap().is_empty());
    store.settle_webhook(id, 0, None).await.unwrap();
    // Each end has one, and they are taken in parts.
    for _ in 0..3 {
        let id = enqueue(&*store, with_webhook()).await.id;
        store.cancel(id).await.unwrap();
    }
    assert_eq!(store.due_webhooks(2).await.unwrap().len(), 2);
    assert_eq!(store.due_webhooks(2).await.unwrap().len(), 1);
}

/// A webhook knows the retries of its request.
pub async fn a_webhook_knows_the_retries_of_its_request<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, with_webhook()).await.id;
    for retries in 0..3 {
        let fetched = fetch_one(&*store).await;
        assert!(finish(&*store, fetched, failed("broken")).await);
        let due = store.due_webhooks(10).await.unwrap();
        let due: Vec<_> = due.iter().map(|due| (due.info.id, due.retries)).collect();
        assert_eq!(due, [(id, retries)]);
        if store.operate().is_none() {
            return;
        }
        store.retry(id).await.unwrap();
    }
    let fetched = fetch_one(&*store).await;
    assert!(finish(&*store, fetched, ok("fine")).await);
    // Word of an earlier end comes late, and settles nothing.
    store.settle_webhook(id, 2, None).await.unwrap();
    assert_eq!(store.due_webhooks(10).await.unwrap()[0].retries, 3);
    store
        .settle_webhook(id, 3, Some(Duration::ZERO))
        .await
        .unwrap();
    assert_eq!(store.due_webhooks(10).await.unwrap()[0].retries, 3);
    store.settle_webhook(id, 3, None).await.unwrap();
    assert!(store.due_webhooks(10).await.unwrap().is_empty());
}

/// A webhook is due again unless settled.
pub async fn a_webhook_is_due_again_unless_settled<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let id = enqueue(&*store, with_webhook()).await.id;
        store.cancel(id).await.unwrap();
        ids.push(id);
    }
    assert_eq!(store.due_webhooks(10).await.unwrap().len(), 2);
    store.settle_webhook(ids[0], 0, None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(61)).await;
    let due = store.due_webhooks(10).await.unwrap();
    assert_eq!(due.len(), 1);
    assert_eq!((due[0].info.id, due[0].tries), (ids[1], 1));
}

/// A request is kept until its webhook is settled.
pub async fn a_request_is_kept_until_its_webhook_is_settled<H: Harness>() {
    let harness = H::open(StoreConfig::default().retention(H::UNIT)).await;
    let store = harness.store();
    let mut request = with_webhook();
    request.idempotency = key("key", 1);
    let id = enqueue(&*store, request.clone()).await.id;
    store.cancel(id).await.unwrap();
    assert_eq!(store.due_webhooks(10).await.unwrap().len(), 1);
    pass::<H>(4).await;
    assert_eq!(status(&*store, id).await, RequestStatus::Canceled);
    // So is its key.
    request.id = RequestId::random().unwrap();
    let known = store.enqueue(request.clone()).await.unwrap();
    assert_eq!(known.info().id, id);
    store.settle_webhook(id, 0, None).await.unwrap();
    eventually::<H>(async || store.get(id).await.unwrap().is_none()).await;
    assert_eq!(enqueue(&*store, request.clone()).await.id, request.id);
}

/// A webhook is put off.
pub async fn a_webhook_is_put_off<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, with_webhook()).await.id;
    store.cancel(id).await.unwrap();
    for tries in 0..3 {
        let mut due = Vec::new();
        eventually::<H>(async || {
            due = store.due_webhooks(10).await.unwrap();
            !due.is_empty()
        })
        .await;
        assert_eq!((due[0].info.id, due[0].tries), (id, tries));
        store
            .settle_webhook(id, 0, Some(H::UNIT * 2))
            .await
            .unwrap();
        assert!(store.due_webhooks(10).await.unwrap().is_empty());
    }
    store.settle_webhook(id, 0, None).await.unwrap();
    pass::<H>(2).await;
    assert!(store.due_webhooks(10).await.unwrap().is_empty());
}
