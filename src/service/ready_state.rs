//! The reservation of a service's `poll_ready`: a place in the waiting room for the request that follows.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::gate::reserve::{ReservationHost, Reserved, Reserving};

/// The reservation of a service, if `poll_ready` asked for one. It is not copied to the service's clones.
pub(crate) enum ReadyState<H: ReservationHost> {
    /// `poll_ready` has not asked for a reservation since the last call.
    Idle,
    /// Boxed, so that a clone for each request is small.
    Waiting(Box<Reserving<H>>),
    /// `None` if there will never be a place, and the call says why; or none is needed, as with a call that is measured.
    Reserved(Option<Reserved<H>>),
}

/// The preparation of a call by `poll_ready`: a place in the waiting room, if one was reserved.
pub(crate) struct Prepared<H: ReservationHost>(pub(crate) Option<Reserved<H>>);

impl<H: ReservationHost> ReadyState<H> {
    /// Resolves once a place is reserved, or once waiting for a place is futile.
    pub(crate) fn poll_reserve(&mut self, host: &Arc<H>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self {
                Self::Reserved(_) => return Poll::Ready(()),
                Self::Idle => *self = Self::Waiting(Box::new(Reserving::new(Arc::clone(host)))),
                Self::Waiting(reserving) => {
                    let reserved = ready!(reserving.poll_reserve(cx));
                    *self = Self::Reserved(reserved);
                }
            }
        }
    }

    /// Returns the preparation for the call that is made now.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Prepared<H>> {
        match self {
            Self::Idle => None,
            _ => Some(self.take_prepared()),
        }
    }

    /// Called only with `overflow = "backpressure"` or with a limit that adapts.
    #[cold]
    #[inline(never)]
    fn take_prepared(&mut self) -> Prepared<H> {
        match std::mem::replace(self, Self::Idle) {
            Self::Reserved(reserved) => Prepared(reserved),
            Self::Idle | Self::Waiting(_) => Prepared(None),
        }
    }
}
