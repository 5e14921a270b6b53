//! `RequestQueue` and `BatchLayer`, for consumers that take requests from a waiting room, one at a time or in batches.
//!
//! An engine that serves many requests in one step decides at every step which requests may join, within so much
//! memory. A channel in front of it knows neither priorities nor deadlines. It also keeps the requests of callers that
//! are gone, and hands out the first request even if it does not fit.
//!
//! A [`RequestQueue`] is the waiting room of a [`gate`](crate::gate) without the slots. The engine takes requests from
//! it, one at a time or [as many as fit](RequestQueue::take_batch). The [cost](Cost) of a request is known before it is
//! taken, and [`KvCache`] estimates it for a language model.
//!
//! ```
//! use tower_triage::{Priority, RequestQueue, WaitingRoomConfig};
//!
//! let queue = RequestQueue::new(WaitingRoomConfig::default());
//! queue.enqueue("normal", Priority(1))?;
//! queue.enqueue("urgent", Priority::HIGHEST)?;
//! assert_eq!(queue.try_dequeue(), Ok("urgent"));
//! # Ok::<(), tower_triage::batch::EnqueueError<&str>>(())
//! ```
//!
//! A [`BatchLayer`] forms batches for a service that serves many requests at a time. Its callers see a service of
//! single requests.

mod builder;
mod consumers;
mod cost;
mod deferred;
mod dequeue;
mod error;
mod future;
mod guard;
mod layer;
#[cfg(all(test, loom))]
mod loom;
mod queue;
mod selection;
mod service;
mod shared;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;
mod trigger;
mod worker;

pub use builder::RequestQueueBuilder;
pub use cost::{Cost, KvCache, Tokens};
pub use dequeue::{Dequeue, WaitNonEmpty};
pub use error::{BatchError, DequeueError, EnqueueError, TooLarge};
pub use future::BatchFuture;
pub use guard::RequestGuard;
pub use layer::{Answers, BatchLayer, InOrder, PerItem};
pub use queue::{RequestId, RequestQueue};
pub use selection::OnOversize;
pub use service::Batch;
