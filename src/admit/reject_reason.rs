//! The reasons why a request got no slot.

use std::convert::Infallible;
use std::time::Duration;

/// The reason why a request was rejected. `N` is the capacity's own reason (see [`Capacity::Unservable`]).
///
/// The reason implements `Error` if `N` does. Rejected HTTP responses carry it in their extensions. A
/// [`QueueLayer`](crate::QueueLayer) inserts a `RejectReason`, and a `RouteLayer` inserts a `RejectReason<RouteError>`.
///
/// ```
/// use tower_triage::RejectReason;
/// use tower_triage::rejection::ToRejection;
///
/// let reason: RejectReason = RejectReason::Full;
/// assert_eq!(reason.to_string(), "every slot is busy and the waiting room is full");
/// assert_eq!(reason.to_rejection().code(), "queue_full");
/// ```
///
/// [`Capacity::Unservable`]: super::Capacity::Unservable
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RejectReason<N = Infallible> {
    /// The waiting room is full.
    #[error("every slot is busy and the waiting room is full")]
    Full,
    /// The wait would have been too long, or has lasted for twice a configured target (see
    /// [`TargetWait`](super::TargetWait)).
    #[error("every slot is busy and the wait would be too long")]
    Overloaded {
        /// The time after which the client should try again. It is the time by which the wait would exceed the target,
        /// or did.
        retry_after: Duration,
    },
    /// The tenant already has as many waiting requests as one tenant may have.
    #[error("this tenant has all the slots and places in the waiting room that it may have")]
    TenantFull,
    /// The request waited for as long as the waiting room allows.
    #[error("no slot became free within the longest wait allowed")]
    TimedOut,
    /// The request's own deadline passed while it waited.
    #[error("the request's own deadline passed while it waited for a slot")]
    DeadlinePassed,
    /// The request had its slot for as long as one request may, and its answer had not begun (see
    /// [`QueueConfig::max_hold`](crate::QueueConfig::max_hold)).
    #[error("the answer had not begun when the request's time with its slot was over")]
    HeldTooLong,
    /// The request had its slot, and the rest of its body did not come while another tenant waited for the slot (see
    /// [`Discipline::Fair`](super::Discipline::Fair)).
    #[error("the rest of the request's body did not arrive in time, and others needed its slot")]
    Stalled,
    /// The waiting room is disabled, so requests can't wait.
    #[error("every slot is busy and queueing is disabled")]
    Disabled,
    /// Every slot is busy, and requests are shed instead of queued (see
    /// [`Overflow::Shed`](crate::queue::Overflow::Shed)).
    #[error("the service is overloaded: every slot is busy")]
    Shed,
    /// This request must not wait (see [`Ticket::wait`](super::Ticket::wait)).
    #[error("every slot is busy and this request is not to wait")]
    NotQueued,
    /// Another request replaced this one in the full waiting room. The other has a higher priority, or, where shares
    /// are configured, its tenant or level had fewer waiters for its weight.
    #[error(
        "a request of higher priority, or of a tenant or level further below its share, took this request's place"
    )]
    Displaced,
    /// The gate is closed.
    #[error("the service is shutting down")]
    ShuttingDown,
    /// The capacity will never serve the request.
    #[error(transparent)]
    Unservable(N),
}

impl RejectReason {
    /// Converts the reason into that of a capacity with reasons of its own.
    #[cfg(feature = "batch")]
    pub(crate) fn widen<N>(self) -> RejectReason<N> {
        match self {
            Self::Full => RejectReason::Full,
            Self::Overloaded { retry_after } => RejectReason::Overloaded { retry_after },
            Self::TenantFull => RejectReason::TenantFull,
            Self::TimedOut => RejectReason::TimedOut,
            Self::DeadlinePassed => RejectReason::DeadlinePassed,
            Self::HeldTooLong => RejectReason::HeldTooLong,
            Self::Stalled => RejectReason::Stalled,
            Self::Disabled => RejectReason::Disabled,
            Self::Shed => RejectReason::Shed,
            Self::NotQueued => RejectReason::NotQueued,
            Self::Displaced => RejectReason::Displaced,
            Self::ShuttingDown => RejectReason::ShuttingDown,
            Self::Unservable(never) => match never {},
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn the_capacitys_reason_keeps_its_message_and_source() {
        let offline = std::io::Error::other("offline");
        let why: RejectReason<QueueDown> = RejectReason::Unservable(QueueDown(offline));
        assert_eq!(why.to_string(), "the queue is down");
        assert_eq!(why.source().unwrap().to_string(), "offline");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the queue is down")]
    struct QueueDown(#[source] std::io::Error);
}
