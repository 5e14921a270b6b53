//! The reasons why a request got no slot.

use std::convert::Infallible;
use std::time::Duration;

/// Why a request got no slot. `N` is the capacity's own reason (see [`Capacity::Unservable`]).
///
/// It is an error if `N` is one. Rejected HTTP responses have it among their extensions: those of a
/// [`QueueLayer`](crate::QueueLayer) a `RejectReason`, those of a `RouteLayer` a `RejectReason<RouteError>`.
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
    /// It would have had to wait for too long, or has waited for twice a configured target (see
    /// [`TargetWait`](super::TargetWait)).
    #[error("every slot is busy and the wait would be too long")]
    Overloaded {
        /// The time after which to try again: by how much the wait would exceed the target, or did.
        retry_after: Duration,
    },
    /// The tenant has as many waiting requests as one tenant may have.
    #[error("every slot is busy and this tenant's share of the waiting room is full")]
    TenantFull,
    /// It waited for as long as the waiting room allows.
    #[error("no slot became free within the longest wait allowed")]
    TimedOut,
    /// Its own deadline passed.
    #[error("the request's own deadline passed while it waited for a slot")]
    DeadlinePassed,
    /// No request may wait.
    #[error("every slot is busy and queueing is disabled")]
    Disabled,
    /// This request may not wait (see [`Ticket::wait`](super::Ticket::wait)).
    #[error("every slot is busy and this request is not to wait")]
    NotQueued,
    /// Another request replaced it in the full waiting room: one of higher priority or, where shares are configured, one
    /// of a tenant or level that had fewer places for its weight.
    #[error(
        "a request of higher priority, or of a tenant or level further below its share, took this request's place"
    )]
    Displaced,
    /// The gate is closed.
    #[error("the service is shutting down")]
    ShuttingDown,
    /// The capacity will never serve it.
    #[error(transparent)]
    Unservable(N),
}

impl RejectReason {
    /// The same, of a capacity with reasons of its own.
    #[cfg(feature = "batch")]
    pub(crate) fn widen<N>(self) -> RejectReason<N> {
        match self {
            Self::Full => RejectReason::Full,
            Self::Overloaded { retry_after } => RejectReason::Overloaded { retry_after },
            Self::TenantFull => RejectReason::TenantFull,
            Self::TimedOut => RejectReason::TimedOut,
            Self::DeadlinePassed => RejectReason::DeadlinePassed,
            Self::Disabled => RejectReason::Disabled,
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
