//! The reservation of a service's `poll_ready`: a place in the waiting room for the request that follows.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::gate::reserve::{ReservationHost, Reserved, Reserving};

/// The preparation of a service's next call, if `poll_ready` was asked for one. It is not copied to the service's clones.
pub(crate) struct ReadyState<H: ReservationHost> {
    /// `true` from the first `poll_ready` that prepares a call until that call.
    is_prepared: bool,
    /// `None` for a call that is only measured. Boxed, so that a clone for each request is small.
    reservation: Option<Box<ReservationState<H>>>,
}

/// The reservation of a place for the next call.
enum ReservationState<H: ReservationHost> {
    Waiting(Reserving<H>),
    /// `None` if there will never be a place, and the call says why.
    Reserved(Option<Reserved<H>>),
}

/// The preparation of a call by `poll_ready`: a place in the waiting room, if one was reserved.
pub(crate) struct Prepared<H: ReservationHost>(pub(crate) Option<Reserved<H>>);

impl<H: ReservationHost> ReadyState<H> {
    /// The state of a service that was not polled since its last call.
    pub(crate) const IDLE: Self = Self {
        is_prepared: false,
        reservation: None,
    };

    /// Prepares a call that is measured.
    pub(crate) fn prepare(&mut self) {
        self.is_prepared = true;
    }

    /// Resolves once a place is reserved, or once waiting for a place is futile.
    pub(crate) fn poll_reserve(&mut self, host: &Arc<H>, cx: &mut Context<'_>) -> Poll<()> {
        self.is_prepared = true;
        let new = || Box::new(ReservationState::Waiting(Reserving::new(Arc::clone(host))));
        let reservation = self.reservation.get_or_insert_with(new);
        if let ReservationState::Waiting(reserving) = &mut **reservation {
            let reserved = ready!(reserving.poll_reserve(cx));
            **reservation = ReservationState::Reserved(reserved);
        }
        Poll::Ready(())
    }

    /// Returns the preparation for the call that is made now.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Prepared<H>> {
        self.is_prepared.then(|| self.take_prepared())
    }

    /// Called only with `overflow = "backpressure"` or with a limit that adapts.
    #[cold]
    #[inline(never)]
    fn take_prepared(&mut self) -> Prepared<H> {
        match std::mem::replace(self, Self::IDLE)
            .reservation
            .map(|it| *it)
        {
            Some(ReservationState::Reserved(reserved)) => Prepared(reserved),
            Some(ReservationState::Waiting(_)) | None => Prepared(None),
        }
    }
}
