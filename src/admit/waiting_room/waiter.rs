//! The data of a waiter in front of a capacity.

use crate::admit::nanos::Nanos;
use crate::admit::{Capacity, RejectReason};

/// A waiter in front of a capacity, with its demand and its state.
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
    /// The waiter waits, with its waker if one is set and was not taken.
    Waiting(Option<W>),
    /// The waiter was granted this slot after `waited` nanoseconds, and its task has yet to take it.
    Leased { lease: C::Lease, waited: Nanos },
    /// The waiter was rejected for this reason, and its task has yet to take it.
    Rejected(RejectReason<C::Unservable>),
}
