//! The waiting room from the pull side: a queue that batch schedulers take from, and a layer that makes batches.
//!
//! An engine that serves many requests in one step does not want to be called once for each. At every step it asks
//! who may join now, within so much memory. A plain channel in front of it knows no priorities and no deadlines,
//! keeps those whose callers have gone, and gives out what comes first, whether it fits or not.
//!
//! [`RequestQueue`] is the waiting room that [`gate`](crate::gate) hands slots to, with its other side open: whoever
//! serves comes and takes, one at a time or [as many as fit](RequestQueue::take_batch). A request's [`Cost`] is
//! known before it is taken; [`KvCache`] estimates that of a language model.
//!
//! [`BatchLayer`] does the taking for services that answer many requests at a time: callers see a service of
//! single requests.

mod answers;
mod atomic_state;
mod builder;
mod cancel;
mod consumers;
mod cost;
mod dequeue;
mod due;
mod error;
mod future;
mod guard;
mod layer;
#[cfg(all(test, loom))]
mod loom;
mod member;
mod queue;
mod seat;
mod selection;
mod service;
mod shared;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;
mod worker;

pub use answers::{Answers, InOrder, PerItem};
pub use builder::Builder;
pub use cost::{Cost, KvCache, Tokens};
pub use dequeue::{Dequeue, WaitNonEmpty};
pub use error::{BatchError, DequeueError, EnqueueError, TooLarge};
pub use future::BatchFuture;
pub use guard::RequestGuard;
pub use layer::BatchLayer;
pub use queue::{RequestId, RequestQueue};
pub use selection::OnOversize;
pub use service::Batch;
