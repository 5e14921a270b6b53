//! A guard that takes a request out of the queue when it is dropped.

use std::fmt;

use super::{RequestId, RequestQueue};

/// A guard that ties a request to the task that waits for its response. It is returned by [`RequestQueue::guard`].
///
/// Dropping it takes the request out of the queue at once, if it still waits there, and drops the item. A request that
/// was already dequeued is not affected.
///
/// ```
/// use tower_triage::batch::RequestQueue;
/// use tower_triage::{Priority, WaitingRoomConfig};
///
/// let queue = RequestQueue::new(WaitingRoomConfig::default());
/// let guard = queue.guard(queue.enqueue("a prompt", Priority::HIGHEST)?);
/// drop(guard);
/// assert!(queue.is_empty());
/// # Ok::<(), tower_triage::batch::EnqueueError<&str>>(())
/// ```
#[must_use = "dropping the guard takes the request out of the queue"]
pub struct RequestGuard<T> {
    queue: RequestQueue<T>,
    /// The id of the request, or `None` once there is nothing to remove.
    id: Option<RequestId>,
}

impl<T> RequestGuard<T> {
    pub(super) fn new(queue: RequestQueue<T>, id: RequestId) -> Self {
        Self {
            queue,
            id: Some(id),
        }
    }

    /// Returns `true` if the request still waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.id.is_some_and(|id| self.queue.contains(id))
    }

    /// Returns the position of the request, where 1 is next, or `None` if it no longer waits. This takes O(n log n) in
    /// the number of waiters.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        self.queue.position(self.id?)
    }

    /// Takes the request out, or returns `None` if it no longer waits.
    pub fn remove(mut self) -> Option<T> {
        self.queue.remove(self.id.take()?)
    }

    /// Drops the guard and leaves the request in the queue.
    pub fn disarm(mut self) {
        self.id = None; // `drop` then has nothing to remove
    }
}

impl<T> Drop for RequestGuard<T> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            drop(self.queue.remove(id)); // this is `None` if the request was dequeued
        }
    }
}

impl<T> fmt::Debug for RequestGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestGuard")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
