//! The errors of a request queue and of a batch layer.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::admit::RejectReason;

/// An error for an item that costs more than the queue's whole budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the request costs {cost}, which is more than the whole budget of {budget}")]
pub struct TooLarge {
    /// The cost of the item.
    pub cost: u64,
    /// The whole budget.
    pub budget: u64,
}

/// An error that returns an item which was not enqueued.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EnqueueError<T> {
    /// The item that was to be enqueued.
    pub item: T,
    /// The reason, which is [`RejectReason::Full`] if the queue is full.
    pub reason: RejectReason<TooLarge>,
}

// This is written by hand, because the item need not be `Debug`.
impl<T> fmt::Debug for EnqueueError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueError")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for EnqueueError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        refusal(&self.reason, f)
    }
}

/// Writes the message for a rejection by a waiting room without slots.
fn refusal(why: &RejectReason<TooLarge>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match why {
        RejectReason::Full | RejectReason::Shed => "the queue is full",
        RejectReason::Overloaded { .. } => "it would have to wait for too long",
        RejectReason::TenantFull => "this tenant's share of the queue is full",
        RejectReason::TimedOut => "it was not taken within the longest wait allowed",
        RejectReason::DeadlinePassed => "its own deadline passed before it was taken",
        RejectReason::HeldTooLong | RejectReason::Stalled => "it was taken and not finished in time",
        RejectReason::Disabled => "the queue takes no items",
        RejectReason::NotQueued => "it was not to wait",
        RejectReason::Displaced => {
            "a request of higher priority, or of a tenant or level further below its share, took its place"
        }
        RejectReason::ShuttingDown => "the queue is closed",
        RejectReason::Unservable(why) => return fmt::Display::fmt(why, f),
    })
}

impl<T> Error for EnqueueError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.reason)
    }
}

/// An error of a consumer that found the queue empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DequeueError {
    /// The queue is empty, or its first item did not arrive in time.
    #[error("the queue is empty")]
    Empty,
    /// The queue is closed and empty, so items will not arrive any more.
    #[error("the queue is closed and empty")]
    Closed,
}

/// The reason why a request got no response from its batch. `E` is the inner service's error, and `I` is the error of a
/// single request (see [`PerItem`](super::PerItem)).
///
/// The type is an [`Error`] if both `E` and `I` are. Its source is the error that occurred, or the reason of the
/// rejection. Boxed inner errors, such as those of Tower's own layers, need a [`BoxedError`](crate::queue::BoxedError)
/// around them for that.
#[derive(Debug)]
#[non_exhaustive]
pub enum BatchError<E, I = Infallible> {
    /// The request was rejected before it joined a batch.
    Rejected(RejectReason<TooLarge>),
    /// The inner service failed, either for this batch and so for all of its requests, or for good. An inner service
    /// that will never be ready again fails all requests.
    Inner(Arc<E>),
    /// This request failed, although the batch as a whole succeeded.
    Item(I),
    /// The numbers of responses and requests differ, so that they cannot be matched.
    WrongCount {
        /// The number of requests in the batch.
        requests: usize,
        /// The number of responses.
        answers: usize,
    },
    /// The batch broke off, because the inner service panicked or its runtime was shut down.
    Lost,
}

impl<E, I: Clone> Clone for BatchError<E, I> {
    fn clone(&self) -> Self {
        match self {
            Self::Rejected(why) => Self::Rejected(*why),
            Self::Inner(error) => Self::Inner(Arc::clone(error)),
            Self::Item(error) => Self::Item(error.clone()),
            &Self::WrongCount { requests, answers } => Self::WrongCount { requests, answers },
            Self::Lost => Self::Lost,
        }
    }
}

impl<E: fmt::Display, I: fmt::Display> fmt::Display for BatchError<E, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(why) => refusal(why, f),
            Self::Inner(error) => error.fmt(f),
            Self::Item(error) => error.fmt(f),
            Self::WrongCount { requests, answers } => {
                write!(
                    f,
                    "the batch had {requests} requests and got {answers} answers"
                )
            }
            Self::Lost => f.write_str("the batch broke off without an answer"),
        }
    }
}

impl<E: Error + 'static, I: Error + 'static> Error for BatchError<E, I> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Rejected(why) => Some(why),
            Self::Inner(error) => Some(&**error),
            Self::Item(error) => Some(error),
            Self::WrongCount { .. } | Self::Lost => None,
        }
    }
}
