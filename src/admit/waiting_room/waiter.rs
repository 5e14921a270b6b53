//! What a waiter in front of a capacity carries.

use crate::admit::nanos::Nanos;
use crate::admit::{Capacity, RejectReason};

/// What a waiter in front of a capacity carries.
pub(crate) struct Waiter<C: Capacity, W> {
    pub(crate) demand: C::Demand,
    pub(crate) state: State<C, W>,
}

impl<C: Capacity, W> Waiter<C, W> {
    #[inline]
    pub(crate) fn new(demand: C::Demand, waker: Option<W>) -> Self {
        let state = State::Waiting(waker);
        Self { demand, state }
    }
}

/// The state of a waiter: waiting, granted, or rejected.
pub(crate) enum State<C: Capacity, W> {
    /// With its waker, if that was set and not taken.
    Waiting(Option<W>),
    /// Granted this slot, which is yet to be taken by its task, after so many nanoseconds.
    Leased { lease: C::Lease, waited: Nanos },
    /// Rejected for this reason, which is yet to be taken by its task.
    Rejected(RejectReason<C::Unservable>),
}
