//! Requests that survive the process: a store keeps each one before its caller gets an answer, and a worker serves it
//! when a slot is free.
//!
//! A [`Store`] keeps the requests, their outcomes and their order. Requests enter at a front and run in workers, which
//! may share one process or be spread over many machines. A worker takes a request from the store only when it has a
//! slot for it. So the most urgent request goes first, on whichever machine it arrived, and a request that has left the
//! queue is really running.
//!
//! - A [`DurableLayer`] is a front. It stores the requests that ask for it, passes all others on, and reports the
//!   progress of the stored ones.
//! - [`webhooks`] tell callers that their requests have ended.
//! - A [`Worker`] runs stored requests in any Tower service. It waits for slots in the same [gate](tower_triage::Gate) as the
//!   online traffic, so a low level of stored requests uses exactly the slots that the online traffic leaves free.
//!
//! ```
//! use std::sync::Arc;
//! use axum::{Router, body::Body, routing::post};
//! use http::Request;
//! use tower::{Layer, ServiceExt};
//! use tower_triage::{QueueConfig, QueueLayer};
//! use tower_triage_durable::{DurableLayer, Store, StoreConfig, Worker};
//! use tower_triage_embedded::EmbeddedStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory(StoreConfig::default())?);
//! let queue = QueueLayer::new(QueueConfig::new(8));
//! let gate = queue.handle().gate().expect("it has slots of its own").clone();
//!
//! // Online requests and stored ones share the slots of the queue.
//! let backend = Router::new().route("/images", post(|| async { "an image" }));
//! let service = queue.layer(backend);
//! tokio::spawn(Worker::new(store.clone(), service.clone()).slots(gate).run());
//! let app = DurableLayer::new(store).layer(service);
//!
//! let request = Request::post("/images").header("prefer", "respond-async").body(Body::empty())?;
//! let receipt = app.clone().oneshot(request).await?;
//! assert_eq!(receipt.status(), 202);
//! let location = receipt.headers()["location"].to_str()?;
//!
//! let request = Request::get(format!("{location}?wait=10")).body(Body::empty())?;
//! assert_eq!(app.clone().oneshot(request).await?.status(), 200);
//! let request = Request::get(format!("{location}/response")).body(Body::empty())?;
//! let response = app.oneshot(request).await?.map(Body::new);
//! assert_eq!(axum::body::to_bytes(response.into_body(), 100).await?, "an image");
//! # Ok(())
//! # }
//! ```
//!
//! # Semantics
//!
//! Each stored request has exactly one recorded outcome. With [`OnCrash::Fail`] a request is started at most once, and
//! it fails if its worker dies. With [`OnCrash::Retry`] it is started again, up to a number of attempts, so the inner
//! service may see it several times.

mod abilities;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod drain;
mod duration;
mod error;
mod front;
mod headers;
mod id;
mod info;
mod lease;
mod outcome;
pub mod reason;
mod rejections;
mod request;
mod storage_quota;
mod store;
mod store_health;
#[cfg(test)]
mod stub;
pub mod webhooks;
mod wire;
mod worker;

pub use abilities::{Drain, KeyValues, Operate, Streams, Webhooks};
pub use config::{InvalidStoreConfig, OnCrash, StoreConfig};
pub use drain::DrainStore;
pub use duration::parse_duration;
pub use error::StoreError;
pub use front::{
    Classified, Classifier, ClassifyHeaders, Durable, DurableBody, DurableFuture, DurableHandle,
    DurableLayer,
};
pub use id::{InvalidRequestId, RequestId};
pub use info::{Listing, Page, QueueDepth, QueueEvent, QueueTotal, RequestInfo, RequestStatus};
pub use lease::{Fetched, Lease, Stop};
pub use outcome::Outcome;
pub use request::{Idempotency, NewRequest};
pub use storage_quota::{FileUpload, FileUsage, QuotaError, StorageLimits, StorageQuota};
pub use store::{
    Backlog, BacklogChange, Chunk, Chunks, DueWebhook, Enqueued, Found, FreePlace, IdleWorker,
    Pause, PauseScope, QueueHead, ResponsePart, Store, StoreFuture,
};
pub use wire::{
    InvalidStored, decode_request, decode_response, encode_request, encode_response, fingerprint,
};
pub use worker::{NoSlot, RetryPolicy, Slot, SlotWait, Slots, Worker};

pub use tower_triage::queue::BodyMemory;
