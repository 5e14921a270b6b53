//! `QueueLayer`: a bounded, ordered waiting room in front of any service.
//!
//! With a plain concurrency limit, requests beyond it wait without bound and first come, first served; and a streamed
//! response runs outside the limit, because its slot is free as soon as the headers are out.
//!
//! [`QueueLayer`] makes [`Queue`] services. If a slot is free, the request is passed on at once and nothing of it is
//! read. Otherwise it gets a ticket ([`Classify`]) and a place in the waiting room, or a rejection in the form of its
//! [`Protocol`]. A [`QueueHandle`] reports and reconfigures.

mod classify;
mod config;
mod error;
mod future;
mod handle;
mod layer;
mod protocol;
mod service;
mod shared_inner;

pub use classify::{Classify, DefaultPriority, FromHeaders};
pub use config::{Concurrency, Hold, InvalidQueueConfig, Overflow, QueueConfig, Streaming};
pub use error::{BoxedError, QueueError};
pub use future::ResponseFuture;
pub use handle::QueueHandle;
pub use layer::{QueueLayer, SharedQueueLayer};
pub use protocol::{Http, Plain, Protocol};
pub use service::Queue;
pub use shared_inner::SharedInner;
