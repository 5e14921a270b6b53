//! Lists of requests.

use crate::{RequestId, RequestStatus, StoreConfig};

use super::*;

/// A list is newest first and in pages.
pub async fn a_list_is_newest_first_and_in_pages<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let mut ids = Vec::new();
    for nth in 0..5 {
        let request = request_with(|request| request.queue = format!("q{nth}"));
        ids.push(enqueue(&*store, request).await.id);
    }
    ids.reverse();
    let mut seen = Vec::new();
    let mut pages = 0;
    loop {
        let page = listing(|listing| {
            listing.limit = 2;
            listing.after = seen.last().copied();
        });
        let page = store.list(page).await.unwrap();
        seen.extend(page.requests.iter().map(|info| info.id));
        pages += 1;
        if !page.has_more {
            break;
        }
    }
    assert_eq!(seen, ids);
    assert_eq!(pages, 3);
    let unknown = listing(|listing| listing.after = RequestId::random().ok());
    assert!(store.list(unknown).await.unwrap().requests.is_empty());
    let full = store
        .list(listing(|listing| listing.limit = 5))
        .await
        .unwrap();
    assert!(!full.has_more);
}

/// A list is of one tenant or status.
pub async fn a_list_is_of_one_tenant_or_status<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let mut ids = Vec::new();
    for tenant in ["a", "b", "a", "a"] {
        let request = request_with(|request| request.tenant = tenant.into());
        ids.push(enqueue(&*store, request).await.id);
    }
    store.cancel(ids[0]).await.unwrap();
    store.cancel(ids[1]).await.unwrap();
    let names = async |change: &dyn Fn(&mut crate::Listing)| {
        let page = store.list(listing(change)).await.unwrap();
        let names = page.requests.iter().map(|info| info.id);
        names.collect::<Vec<_>>()
    };
    let of_a = names(&|listing| listing.tenant = Some(b"a".to_vec())).await;
    assert_eq!(of_a, [ids[3], ids[2], ids[0]]);
    let canceled = names(&|listing| listing.status = Some(RequestStatus::Canceled)).await;
    assert_eq!(canceled, [ids[1], ids[0]]);
    let both = names(&|listing| {
        listing.tenant = Some(b"a".to_vec());
        listing.status = Some(RequestStatus::Queued);
        listing.after = Some(ids[3]);
    })
    .await;
    assert_eq!(both, [ids[2]]);
    let called = fetch_one(&*store).await;
    store.called(&called.lease).await.unwrap();
    let all = store.list(listing(|_| ())).await.unwrap();
    let found = all
        .requests
        .iter()
        .find(|info| info.id == called.lease.id());
    let found = found.map(|info| info.status);
    assert_eq!(found, Some(RequestStatus::Processing));
    let processing = names(&|listing| listing.status = found).await;
    assert_eq!(processing, [called.lease.id()]);
    let of_none = names(&|listing| listing.tenant = Some(Vec::new())).await;
    assert!(of_none.is_empty());
}

/// Unlisted requests are in no list.
pub async fn unlisted_requests_are_in_no_list<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let listed = enqueue(&*store, request()).await.id;
    for _ in 0..3 {
        enqueue(&*store, request_with(|request| request.is_listed = false)).await;
    }
    let page = store
        .list(listing(|listing| listing.limit = 1))
        .await
        .unwrap();
    assert_eq!(page.requests[0].id, listed);
    assert!(!page.has_more);
    assert_eq!(store.fetch("", 10).await.unwrap().len(), 4);
}
