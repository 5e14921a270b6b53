//! The reservation of a service's `poll_ready`: a place in the waiting room for the request that follows.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::gate::reserve::{ReservationHost, Reserved, Reserving};

/// A service's reservation, if it asked for one. Not carried over to its clones.
pub(crate) enum ReadyState<H: ReservationHost> {
    /// Not asked.
    Idle,
    /// Boxed, so that a clone for each request is small.
    Waiting(Box<Reserving<H>>),
    /// `None` if there will never be a place, and the call says why; or none is needed, as with a call that is measured.
    Reserved(Option<Reserved<H>>),
}

/// What a call has from `poll_ready`: a place in the waiting room, if one was reserved.
pub(crate) struct Prepared<H: ReservationHost>(pub(crate) Option<Reserved<H>>);

impl<H: ReservationHost> ReadyState<H> {
    /// Ready once a place is reserved.
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

    /// What was prepared for the call that is made now.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Prepared<H>> {
        match self {
            Self::Idle => None,
            _ => Some(self.take_prepared()),
        }
    }

    /// Only with `overflow = "backpressure"`, or with a limit that adapts.
    #[cold]
    #[inline(never)]
    fn take_prepared(&mut self) -> Prepared<H> {
        match std::mem::replace(self, Self::Idle) {
            Self::Reserved(reserved) => Prepared(reserved),
            Self::Idle | Self::Waiting(_) => Prepared(None),
        }
    }
}
