//! Helpers of the suite's tests.

use std::time::Duration;

use crate::{
    Enqueued, Fetched, Idempotency, Listing, NewRequest, OnCrash, Outcome, RequestId, RequestInfo,
    RequestStatus, Store, StoreConfig,
};
use bytes::Bytes;
use tokio::time::sleep;

use super::Harness;

/// Returns a request of a random name, with its name as its body.
pub fn request() -> NewRequest {
    let id = RequestId::random().unwrap();
    NewRequest::new(id, Bytes::from(id.to_string()))
}

/// Returns a request of a random name, changed by `change`.
pub fn request_with(change: impl FnOnce(&mut NewRequest)) -> NewRequest {
    let mut request = request();
    change(&mut request);
    request
}

/// Returns a key with a fingerprint of this byte.
pub fn key(key: &str, fingerprint: u8) -> Option<Idempotency> {
    Some(Idempotency {
        key: key.to_owned(),
        fingerprint: [fingerprint; 32],
    })
}

/// Returns the outcome of a response with status 200.
pub fn ok(body: &'static str) -> Outcome {
    responded(200, body)
}

/// Returns the outcome of a response.
pub fn responded(status: u16, body: &'static str) -> Outcome {
    Outcome::Responded {
        status,
        response: Bytes::from_static(body.as_bytes()),
    }
}

/// Returns the outcome of an attempt without a response.
pub fn failed(reason: &str) -> Outcome {
    Outcome::Failed {
        reason: reason.to_owned(),
    }
}

/// Returns the outcome of an attempt that is to be made again.
pub fn again(after: Duration) -> Outcome {
    Outcome::Retry {
        after,
        counts: true,
    }
}

/// Returns a listing of up to 100 requests, changed by `change`.
pub fn listing(change: impl FnOnce(&mut Listing)) -> Listing {
    let mut listing = Listing {
        limit: 100,
        ..Listing::default()
    };
    change(&mut listing);
    listing
}

/// A configuration that retries what its worker lost.
pub fn retrying() -> StoreConfig {
    StoreConfig::default().on_crash(OnCrash::Retry { max_attempts: 2 })
}

/// Stores a new request.
pub async fn enqueue(store: &dyn Store, request: NewRequest) -> RequestInfo {
    match store.enqueue(request).await.unwrap() {
        Enqueued::New(info) => info,
        Enqueued::Known(info) => panic!("known already: {info:?}"),
    }
}

/// Returns a request that has to be known.
pub async fn get(store: &dyn Store, id: RequestId) -> RequestInfo {
    store.get(id).await.unwrap().expect("it is known")
}

/// Returns the status of a request that has to be known.
pub async fn status(store: &dyn Store, id: RequestId) -> RequestStatus {
    get(store, id).await.status
}

/// Takes one request of the queue without a name, which has to be there.
pub async fn fetch_one(store: &dyn Store) -> Fetched {
    let mut fetched = store.fetch("", 1).await.unwrap();
    assert_eq!(fetched.len(), 1, "one request may begin");
    fetched.remove(0)
}

/// Takes a request of the queue without a name as soon as there is one.
pub async fn fetch_next(store: &dyn Store) -> Fetched {
    loop {
        let backlog = store.backlog().await.unwrap();
        if let Some(fetched) = store.fetch("", 1).await.unwrap().pop() {
            return fetched;
        }
        store.changed(backlog.version).await.unwrap();
    }
}

/// Records the outcome of an attempt. Returns `true` if it counts.
pub async fn finish(store: &dyn Store, fetched: Fetched, outcome: Outcome) -> bool {
    store.finish(fetched.lease, outcome).await.unwrap()
}

/// Runs the requests that may begin, one after the other, and returns their names in this order.
pub async fn run_all(store: &dyn Store) -> Vec<RequestId> {
    let mut order = Vec::new();
    while let Some(fetched) = store.fetch("", 1).await.unwrap().pop() {
        order.push(fetched.lease.id());
        assert!(finish(store, fetched, ok("")).await);
    }
    order
}

/// Lets `units` times the unit of the harness pass.
pub async fn pass<H: Harness>(units: u32) {
    sleep(H::UNIT * units).await;
}

/// Waits until a condition holds that nothing announces.
pub async fn eventually<H: Harness>(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        sleep(H::UNIT / 10).await;
    }
}
