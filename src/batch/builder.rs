//! The builder of a request queue.

use std::fmt;

use super::shared::{OnRejected, Shared};
use super::{Cost, OnOversize, RequestQueue, TooLarge};
use crate::admit::{RejectReason, WaitingRoomConfig};

/// A builder of a [`RequestQueue`], which is returned by [`RequestQueue::builder`].
///
/// The type of the items has to be named if only a closure gives it. If an item holds the sender of its response, every
/// rejection can be sent in one place:
///
/// ```
/// use tokio::sync::oneshot;
/// use tower_triage::batch::{RequestQueue, TooLarge};
/// use tower_triage::{Priority, RejectReason, WaitingRoomConfig};
///
/// struct Job {
///     prompt: String,
///     answer: oneshot::Sender<Result<String, RejectReason<TooLarge>>>,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = RequestQueue::<Job>::builder(WaitingRoomConfig::default())
///     .cost(8_192, |job: &Job| job.prompt.len() as u64)
///     .on_rejected(|job, why| _ = job.answer.send(Err(why)))
///     .build();
///
/// let (answer, answered) = oneshot::channel();
/// let job = Job { prompt: "hello".into(), answer };
/// queue.enqueue(job, Priority::HIGHEST)?;
/// queue.close();
/// assert_eq!(answered.await?, Err(RejectReason::ShuttingDown));
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct RequestQueueBuilder<T> {
    pub(super) room: WaitingRoomConfig,
    pub(super) cost: Option<Box<dyn Cost<T>>>,
    pub(super) budget: u64,
    pub(super) on_oversize: OnOversize,
    pub(super) on_rejected: Option<Box<OnRejected<T>>>,
}

impl<T> RequestQueueBuilder<T> {
    pub(super) fn new(room: WaitingRoomConfig) -> Self {
        Self {
            room,
            cost: None,
            budget: u64::MAX,
            on_oversize: OnOversize::default(),
            on_rejected: None,
        }
    }

    /// Sets the cost of items, and the total cost that those of a batch may have. The budget is usually all the memory
    /// of an engine that is idle. By default, each item costs 1, and the total is unlimited.
    ///
    /// An item that costs more than the whole budget is rejected when it is enqueued ([`TooLarge`]), because it would
    /// block the queue for ever.
    pub fn cost(mut self, whole_budget: u64, cost: impl Cost<T>) -> Self {
        self.budget = whole_budget;
        self.cost = Some(Box::new(cost));
        self
    }

    /// Sets the reaction to a next item that does not fit into a batch. By default, the batch ends there.
    pub fn on_oversize(mut self, on_oversize: OnOversize) -> Self {
        self.on_oversize = on_oversize;
        self
    }

    /// Sets a callback for items that are rejected while they wait. An item is rejected if it waited for too long, was
    /// displaced, or did not fit any more after a reconfiguration, or if the queue was closed. By default, rejected
    /// items are dropped.
    ///
    /// The queue calls it without a lock, from its timer or inside a call of one of its methods. Items that are
    /// removed, cleared or cancelled are not passed to it. A panic in it is caught, so the other items are still passed
    /// to it, and the method that called it returns as usual.
    pub fn on_rejected(
        mut self,
        act: impl Fn(T, RejectReason<TooLarge>) + Send + Sync + 'static,
    ) -> Self {
        self.on_rejected = Some(Box::new(act));
        self
    }

    /// Creates an empty queue.
    #[must_use]
    pub fn build(self) -> RequestQueue<T> {
        RequestQueue {
            shared: Shared::new(self),
        }
    }
}

impl<T> fmt::Debug for RequestQueueBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestQueueBuilder")
            .field("room", &self.room)
            .field("budget", &self.budget)
            .field("on_oversize", &self.on_oversize)
            .finish_non_exhaustive()
    }
}
