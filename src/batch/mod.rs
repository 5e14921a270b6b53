//! The waiting room from the pull side: a queue that batch schedulers take from, and a layer that makes batches.
//!
//! An engine that serves many requests in one step does not want to be called once for each. At every step it asks
//! who may join now, within so much memory. A plain channel in front of it knows no priorities and no deadlines,
//! keeps those whose callers have gone, and gives out what comes first, whether it fits or not.
//!
//! [`RequestQueue`] is the waiting room that [`gate`](crate::gate) hands slots to, with its other side open: whoever
//! serves comes and takes, one at a time or [as many as fit](RequestQueue::take_batch). A request's [`Cost`] is
//! known before it is taken; [`KvCache`] estimates that of a language model.

mod builder;
mod cancel;
mod capacity;
mod consumers;
mod cost;
mod dequeue;
mod error;
mod guard;
mod lock;
mod queue;
mod selection;
mod shared;

pub use builder::Builder;
pub use capacity::TooLarge;
pub use cost::{Cost, KvCache, Tokens};
pub use dequeue::{Dequeue, Occupied};
pub use error::{DequeueError, EnqueueError};
pub use guard::RequestGuard;
pub use queue::{RequestId, RequestQueue};
pub use selection::Misfit;
