//! Why a request got no slot.

use std::convert::Infallible;

/// Why a request got no slot. `N` is the capacity's own reason (see [`Capacity::Unservable`]).
///
/// [`Capacity::Unservable`]: super::Capacity::Unservable
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RejectReason<N = Infallible> {
    /// All chairs are taken.
    #[error("every slot is busy and the waiting room is full")]
    Full,
    /// The tenant has as many waiting requests as one tenant may have.
    #[error("every slot is busy and this tenant's share of the waiting room is full")]
    TenantFull,
    /// It waited as long as the room lets a request wait.
    #[error("no slot became free within the longest wait allowed")]
    TimedOut,
    /// The deadline that its caller gave it passed.
    #[error("the request's own deadline passed while it waited for a slot")]
    DeadlinePassed,
    /// There are no chairs at all.
    #[error("every slot is busy and queueing is disabled")]
    Disabled,
    /// It was not to wait (see [`Ticket::wait`](super::Ticket::wait)).
    #[error("every slot is busy and this request is not to wait")]
    NotQueued,
    /// A request of higher priority took its chair.
    #[error("a request of higher priority took this request's place in the full waiting room")]
    Displaced,
    /// The gate is closed.
    #[error("the service is shutting down")]
    ShuttingDown,
    /// The capacity will never serve it.
    #[error("{0}")]
    Unservable(N),
}

impl RejectReason {
    /// The same, of a capacity with reasons of its own.
    #[cfg(feature = "batch")]
    pub(crate) fn widen<N>(self) -> RejectReason<N> {
        match self {
            Self::Full => RejectReason::Full,
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
