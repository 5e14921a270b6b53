//! Ended requests are forgotten.

use crate::{RequestStatus, StoreConfig};

use super::*;

/// An ended request is forgotten after its retention.
pub async fn an_ended_request_is_forgotten_after_its_retention<H: Harness>() {
    let harness = H::open(StoreConfig::default().retention(H::UNIT * 2)).await;
    let store = harness.store();
    let request = request();
    let id = request.id;
    enqueue(&*store, request.clone()).await;
    let fetched = fetch_one(&*store).await;
    if let Some(streams) = store.streams() {
        streams
            .append(&fetched.lease, "piece".into())
            .await
            .unwrap();
    }
    assert!(finish(&*store, fetched, ok("answer")).await);
    assert_eq!(store.response(id).await.unwrap().unwrap(), "answer");
    eventually::<H>(async || store.get(id).await.unwrap().is_none()).await;
    assert_eq!(store.response(id).await.unwrap(), None);
    if let Some(drain) = store.drain() {
        assert_eq!(drain.request(id).await.unwrap(), None);
    }
    if let Some(streams) = store.streams() {
        assert_eq!(streams.chunks(id, 0).await.unwrap(), None);
    }
    store.ended(id).await.unwrap();
    if let Some(operate) = store.operate() {
        let page = operate.list(listing(|_| ())).await.unwrap();
        assert!(page.requests.is_empty());
    }
    // Its name may be used again.
    let info = enqueue(&*store, request).await;
    assert_eq!((info.status, info.attempts), (RequestStatus::Queued, 0));
    assert_eq!(store.response(id).await.unwrap(), None);
}

/// A request that has not ended is kept.
pub async fn a_request_that_has_not_ended_is_kept<H: Harness>() {
    let harness = H::open(StoreConfig::default().retention(H::UNIT)).await;
    let store = harness.store();
    let running = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    let waiting = enqueue(&*store, request()).await.id;
    let ended = enqueue(&*store, request()).await.id;
    store.cancel(ended).await.unwrap();
    pass::<H>(4).await;
    eventually::<H>(async || store.get(ended).await.unwrap().is_none()).await;
    assert_eq!(status(&*store, running).await, RequestStatus::Starting);
    assert_eq!(status(&*store, waiting).await, RequestStatus::Queued);
    assert!(finish(&*store, fetched, ok("")).await);
}

/// The bytes of a tenant count until they are forgotten.
pub async fn the_bytes_of_a_tenant_count_until_they_are_forgotten<H: Harness>() {
    let harness = H::open(StoreConfig::default().retention(H::UNIT)).await;
    let store = harness.store();
    let bytes = async |tenant: &[u8]| store.stored_bytes(tenant).await.unwrap();
    let of_tenant = || {
        request_with(|request| {
            request.tenant = b"t".to_vec();
            request.request = vec![b'x'; 1_000].into();
        })
    };
    let first = of_tenant();
    enqueue(&*store, first.clone()).await;
    store.enqueue(first).await.unwrap(); // known
    assert_eq!(bytes(b"t").await, 1_000);
    let canceled = enqueue(&*store, of_tenant()).await.id;
    assert_eq!(bytes(b"t").await, 2_000);
    let fetched = fetch_one(&*store).await;
    assert!(finish(&*store, fetched, ok("answer")).await);
    store.cancel(canceled).await.unwrap();
    assert_eq!(bytes(b"t").await, 2_006);
    assert_eq!(bytes(b"").await, 0);
    eventually::<H>(async || bytes(b"t").await == 0).await;
}
