//! Why something was not enqueued, or not dequeued.

use std::error::Error;
use std::fmt;

use super::TooLarge;
use crate::admit::Rejected;

/// The item was not enqueued. It comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EnqueueError<T> {
    /// What was to be enqueued.
    pub item: T,
    /// Why it was not: [`Rejected::Full`] if every chair is taken.
    pub why: Rejected<TooLarge>,
}

// The item need not be printable for its rejection to be.
impl<T> fmt::Debug for EnqueueError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueError")
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for EnqueueError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            // There are no slots to speak of.
            Rejected::Full => "the queue is full",
            Rejected::TenantFull => "this tenant's share of the queue is full",
            Rejected::Disabled => "the queue has no chairs",
            Rejected::ShuttingDown => "the queue is closed",
            ref why => return why.fmt(f),
        };
        f.write_str(why)
    }
}

impl<T> Error for EnqueueError<T> {}

/// There was nothing to dequeue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DequeueError {
    /// Nothing waits, or nothing came in time.
    #[error("the queue is empty")]
    Empty,
    /// Nothing waits, and nothing will ever come.
    #[error("the queue is closed and empty")]
    Closed,
}
