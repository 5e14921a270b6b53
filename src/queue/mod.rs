//! A bounded, ordered waiting room in front of any service: `QueueLayer`.
//!
//! Tower's `ConcurrencyLimit` lets any number of requests wait, for as long as it takes, in the order in which they
//! arrive. It frees a slot with the response's head, so a streamed body runs outside the limit.
//!
//! [`QueueLayer`] makes [`Queue`] services. A request that finds a slot free passes through unread. Any other request
//! gets a ticket from a [classifier](Classify) and waits, or is rejected in the manner of its [`Protocol`]. A
//! [`QueueHandle`] reports on the queue and reconfigures it.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_triage::{Discipline, QueueConfig, QueueLayer};
//!
//! let config = QueueConfig::new(8)
//!     .discipline(Discipline::Fair) // tenants take turns
//!     .displace(true);              // in a full room, a high priority replaces a low one
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(QueueLayer::new(config));
//! ```
//!
//! | for | use |
//! |---|---|
//! | a limit without bounds on the wait, or no wait at all | [`QueueLayer::limit`], [`QueueLayer::shed`] |
//! | a slot that is free as soon as the response's head is there | [`QueueLayer::until_headers`] |
//! | services that are not HTTP | [`QueueLayer::plain`] |
//! | a limit that is found by measurement | [`Concurrency::Adaptive`] |
//! | health checks that pass without a slot | [`QueueLayer::exempt`] |
//! | counters, histograms and logs | [`QueueLayer::observe`] |
//! | uploads over HTTP/2 that wait | [`QueueLayer::read_ahead`] |
//! | a queue that the configuration can leave out | [`QueueLayer::map_response_body`] |
//! | a limit for each method or path, or for each service | [`QueueLayer::per_key`], [`QueueLayer::per_service`] |
//!
//! # Spans
//!
//! A request that waits for a slot has a span `triage.queue` of the level `debug`, from the time at which it is queued until
//! its wait is over. The field `priority` is the number of its level. The field `outcome` is `slot`, `rejected`, or `failed` if
//! the inner service failed; it is missing if the request was dropped while it waited. The span is a child of the one in which
//! the request is polled. Requests that find a slot free have none.

mod classify;
mod clone_or_share_inner;
mod config;
mod delayed_head;
mod error;
mod exempt;
mod future;
mod handle;
mod layer;
mod limited_body;
#[cfg(feature = "load")]
mod load;
mod map_response_body;
#[cfg(feature = "tonic")]
mod named_service;
mod observe;
mod on_reject;
mod per_key;
mod per_service;
mod protocol;
#[cfg(feature = "metrics")]
mod queue_metrics;
mod queue_time;
mod read_ahead;
mod request;
mod request_head;
mod response_body;
mod service;
mod shared_inner;

pub use crate::http::{BodyMemory, HeaderClassifier, HoldError, MemoryShare, wants_stream};
pub use classify::{Classify, ClassifyContext, DefaultPriority, FromHeaders};
pub use clone_or_share_inner::CloneOrShareInner;
pub use config::{Concurrency, Hold, InvalidQueueConfig, Overflow, QueueConfig, Streaming};
pub use delayed_head::DelayedHead;
pub use error::{BoxedError, QueueError};
pub use exempt::{Exempt, NoExemptions};
pub use future::QueueFuture;
pub use handle::QueueHandle;
pub use layer::{QueueLayer, SharedQueueLayer};
pub use map_response_body::{MapResponseBody, MapResponseBodyFuture, MapResponseBodyLayer};
pub use observe::{Observed, ObservedBody, ObservedFuture, ObservedLayer, Observer, RequestEnd};
pub use on_reject::RejectAnswer;
pub use per_key::{PerKeyHandle, PerKeyLayer, PerKeyQueue};
pub use per_service::PerServiceLayer;
pub use protocol::{Http, HttpMode, Plain, Protocol, UntilBodyEnds, UntilHeaders, WithStatus};
#[cfg(feature = "metrics")]
pub use queue_metrics::QueueMetrics;
pub use queue_time::QueueTime;
pub use read_ahead::{
    ReadAhead, ReadAheadBody, ReadAheadFuture, ReadAheadInner, ReadAheadLayer, WaitingBody,
};
pub use request::QueueRequest;
pub use request_head::RequestHead;
pub use response_body::QueueResponseBody;
pub use service::Queue;
pub use shared_inner::SharedInner;
