//! `QueueLayer`: a bounded, ordered waiting room in front of any service.
//!
//! With a plain concurrency limit, requests that find it reached wait unseen, without bound and in the order
//! in which they happen to be polled; and a streamed answer runs outside the limit, because the slot is free
//! as soon as its headers are out.
//!
//! [`QueueLayer`] makes [`Queue`] services. One that finds a slot free passes the request on and reads
//! nothing of it. Otherwise the request gets a ticket ([`Classify`]) and a chair, or a rejection in the words
//! of its [`Protocol`]. A [`QueueHandle`] reports and reconfigures.

mod classify;
mod clone_or_share_inner;
pub(crate) mod common;
mod config;
mod error;
mod future;
mod handle;
mod layer;
#[cfg(feature = "load")]
mod load;
#[cfg(feature = "tonic")]
mod named_service;
pub(crate) mod protocol;
mod queue_time;
mod response_body;
pub(crate) mod seat;
mod service;
mod shared;

pub use crate::http::HeaderClassifier;
pub use classify::{Classify, ClassifyContext, DefaultPriority, FromHeaders};
pub use clone_or_share_inner::CloneOrShareInner;
pub use config::{Concurrency, Hold, InvalidQueueConfig, Overflow, QueueConfig, Streaming};
pub use error::{BoxedError, QueueError};
pub use future::ResponseFuture;
pub use handle::QueueHandle;
pub use layer::{QueueLayer, SharedQueueLayer};
pub use protocol::{Http, Plain, Protocol};
pub use queue_time::QueueTime;
pub use response_body::QueueResponseBody;
pub use service::Queue;
pub use shared::SharedInner;
