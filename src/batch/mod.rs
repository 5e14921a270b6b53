//! `RequestQueue` and `BatchLayer`: a waiting room to take requests from, one at a time or in batches.
//!
//! An engine that serves many requests in one step asks at every step which may join, within so much memory. A channel
//! in front of it knows no priorities and no deadlines, keeps the requests of callers that are gone, and hands out the first
//! one whether it fits or not.
//!
//! A [`RequestQueue`] is the waiting room of a [`gate`](crate::gate) without the slots: the engine takes from it, one
//! request at a time or [as many as fit](RequestQueue::take_batch). What a request [costs](Cost) is known before it is
//! taken; [`KvCache`] estimates that for a language model.
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
//! A [`BatchLayer`] takes the batches for a service that serves many requests at a time. Its callers see a service of
//! single requests.

mod answers;
mod atomic_state;
mod batch_item;
mod builder;
mod cancel;
mod consumers;
mod cost;
mod deferred;
mod dequeue;
mod error;
mod future;
mod guard;
mod items;
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

pub use answers::{Answers, InOrder, PerItem};
pub use builder::RequestQueueBuilder;
pub use cost::{Cost, KvCache, Tokens};
pub use dequeue::{Dequeue, WaitNonEmpty};
pub use error::{BatchError, DequeueError, EnqueueError, TooLarge};
pub use future::BatchFuture;
pub use guard::RequestGuard;
pub use layer::BatchLayer;
pub use queue::{RequestId, RequestQueue};
pub use selection::OnOversize;
pub use service::Batch;
