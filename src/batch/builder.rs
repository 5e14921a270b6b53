//! The builder of a request queue.

use std::fmt;

use super::shared::{OnRejected, Shared};
use super::{Cost, OnOversize, RequestQueue, TooLarge};
use crate::admit::{RejectReason, WaitingRoomConfig};

/// Makes a [`RequestQueue`]. Made by [`RequestQueue::builder`].
///
/// The type of the items has to be named where only a closure gives it. If an item holds the sender of its response,
/// every rejection can be sent in one place:
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

    /// What items cost, and what those of a batch may cost together: all the memory of an engine that runs nothing
    /// else. Default: 1 each, without a limit.
    ///
    /// An item that costs more than the whole budget is rejected when it is enqueued ([`TooLarge`]), because it would
    /// block the queue for ever.
    pub fn cost(mut self, whole_budget: u64, cost: impl Cost<T>) -> Self {
        self.budget = whole_budget;
        self.cost = Some(Box::new(cost));
        self
    }

    /// What happens when the next item in order does not fit into a batch. Default: the batch ends there.
    pub fn on_oversize(mut self, on_oversize: OnOversize) -> Self {
        self.on_oversize = on_oversize;
        self
    }

    /// What to do with items that are rejected while they wait: because they waited for too long, were displaced, or no
    /// longer fit after a reconfiguration, or because the queue was closed. Default: they are dropped.
    ///
    /// Called without a lock, by the queue's timer or inside a call of one of its methods. Items that are removed,
    /// cleared or cancelled do not come here. A panic in it is caught: the other items are still handed to it, and the
    /// method that called it returns as usual.
    pub fn on_rejected(
        mut self,
        act: impl Fn(T, RejectReason<TooLarge>) + Send + Sync + 'static,
    ) -> Self {
        self.on_rejected = Some(Box::new(act));
        self
    }

    /// An empty queue.
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
