//! Why a request got no slot.

use std::convert::Infallible;

/// Why a request got no slot. `N` is the capacity's own reason (see [`Capacity::Never`]).
///
/// [`Capacity::Never`]: super::Capacity::Never
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Rejected<N = Infallible> {
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
    /// It was not to wait (see [`Ticket::may_wait`](super::Ticket::may_wait)).
    #[error("every slot is busy and this request is not to wait")]
    MayNotWait,
    /// A request of higher priority took its chair.
    #[error("a request of higher priority took this request's place in the full waiting room")]
    Displaced,
    /// The gate is closed.
    #[error("the service is shutting down")]
    ShuttingDown,
    /// The capacity will never serve it.
    #[error("{0}")]
    Never(N),
}

impl<N> Rejected<N> {
    /// The same, where the capacity's own reason is told in another way.
    #[cfg(feature = "batch")]
    pub(crate) fn told<M>(self, tell: impl FnOnce(N) -> M) -> Rejected<M> {
        match self {
            Self::Full => Rejected::Full,
            Self::TenantFull => Rejected::TenantFull,
            Self::TimedOut => Rejected::TimedOut,
            Self::DeadlinePassed => Rejected::DeadlinePassed,
            Self::Disabled => Rejected::Disabled,
            Self::MayNotWait => Rejected::MayNotWait,
            Self::Displaced => Rejected::Displaced,
            Self::ShuttingDown => Rejected::ShuttingDown,
            Self::Never(why) => Rejected::Never(tell(why)),
        }
    }
}
