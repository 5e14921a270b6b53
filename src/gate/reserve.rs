//! Places in the waiting room, reserved ahead of a request.
//!
//! Tower's contract is that `poll_ready` reserves what `call` needs. If that were a slot, a clone that is ready and
//! then idle would hold up all others; a place in the waiting room costs no request a slot.
//!
//! The gate and the batch queue reserve in the same way, each behind its own lock: [`ReservationHost`].

use std::collections::BTreeMap;
use std::fmt;
use std::task::{Context, Poll, Waker, ready};

use super::Gate;
use super::state::Shared;
use super::with_lock::WithLock;
use crate::admit::{Capacity, WakeList};
use crate::sync::Arc;

/// A place in the waiting room, kept for a request that has not arrived. Dropping it frees the place.
#[must_use = "a reservation that is dropped is free again"]
pub struct Reservation<C: Capacity>(pub(crate) Reserved<Shared<C>>);

impl<C: Capacity> fmt::Debug for Reservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}

/// Waits for a place to reserve. Made by [`Gate::reserve`].
///
/// It keeps no place in a line: the first that polls when a place is free gets it, so that one that has asked and is
/// idle holds up no other.
pub struct Reserve<C: Capacity>(Reserving<Shared<C>>);

impl<C: Capacity> Reserve<C> {
    pub(super) fn new(gate: &Gate<C>) -> Self {
        Self(Reserving::new(Arc::clone(gate.shared())))
    }

    /// Waits until a place is free and reserves it. `None` if there will never be one: the gate is closed, or the
    /// waiting room has no places.
    pub fn poll_reserve(&mut self, cx: &mut Context<'_>) -> Poll<Option<Reservation<C>>> {
        self.0.poll_reserve(cx).map(|found| found.map(Reservation))
    }
}

impl<C: Capacity> fmt::Debug for Reserve<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").finish_non_exhaustive()
    }
}

/// A waiting room behind a lock, as far as reservations go.
pub(crate) trait ReservationHost {
    /// Reserves a place, or leaves a waker under the number in `id`. `None` if there will never be a place.
    fn poll_reserve(&self, id: &mut Option<u64>, cx: &mut Context<'_>) -> Poll<Option<()>>;

    /// Drops the waker that was left under `id`.
    fn cancel_reserve(&self, id: u64);

    /// Frees a place that was reserved.
    fn unreserve(&self);
}

/// A reserved place of `H`. Dropping it frees the place.
pub(crate) struct Reserved<H: ReservationHost> {
    host: Option<Arc<H>>,
}

impl<H: ReservationHost> Reserved<H> {
    /// Whether the place is one of `host`.
    pub(super) fn is_of(&self, host: &Arc<H>) -> bool {
        self.host.as_ref().is_some_and(|own| Arc::ptr_eq(own, host))
    }

    /// Leaves the place to the arrival that unreserves it under the lock.
    pub(crate) fn hand_over(mut self) {
        self.host = None; // the destructor frees nothing
    }
}

impl<H: ReservationHost> Drop for Reserved<H> {
    fn drop(&mut self) {
        if let Some(host) = &self.host {
            host.unreserve();
        }
    }
}

/// Waits for a place of `H` to reserve.
pub(crate) struct Reserving<H: ReservationHost> {
    host: Arc<H>,
    /// Its number among the waiters, once it had to wait.
    id: Option<u64>,
}

impl<H: ReservationHost> Reserving<H> {
    pub(crate) fn new(host: Arc<H>) -> Self {
        Self { host, id: None }
    }

    pub(crate) fn poll_reserve(&mut self, cx: &mut Context<'_>) -> Poll<Option<Reserved<H>>> {
        let found = ready!(self.host.poll_reserve(&mut self.id, cx));
        Poll::Ready(found.map(|()| Reserved {
            host: Some(Arc::clone(&self.host)),
        }))
    }
}

impl<H: ReservationHost> Drop for Reserving<H> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.host.cancel_reserve(id); // does nothing if it was woken
        }
    }
}

/// The wakers of those that wait for a place to reserve. They are in no order.
#[derive(Debug, Default)]
pub(crate) struct ReservationWaiters {
    wakers: BTreeMap<u64, Waker>,
    /// The last number that was given.
    last_id: u64,
}

impl ReservationWaiters {
    /// Reserves a place with `reserve`, or keeps `waker` under the number in `id`. The waker that is not needed is to be
    /// dropped without the lock.
    pub(crate) fn poll(
        &mut self,
        is_possible: bool,
        reserve: impl FnOnce() -> bool,
        id: &mut Option<u64>,
        waker: Waker,
    ) -> (Poll<Option<()>>, Option<Waker>) {
        // No place will ever be free: the call says why.
        if !is_possible {
            return (Poll::Ready(None), Some(waker));
        }
        if reserve() {
            return (Poll::Ready(Some(())), Some(waker));
        }
        // A later poll replaces the waker under the same number.
        let id = *id.get_or_insert_with(|| {
            self.last_id += 1;
            self.last_id
        });
        (Poll::Pending, self.wakers.insert(id, waker))
    }

    /// Removes the waker with this number.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Waker> {
        self.wakers.remove(&id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wakers.is_empty()
    }

    /// All are to look again whether there is a place.
    pub(crate) fn wake_all(&mut self, wakes: &mut WakeList<Waker>) {
        let all = std::mem::take(&mut self.wakers);
        all.into_values().for_each(|waker| wakes.push(waker));
    }
}

impl<C: Capacity> ReservationHost for Shared<C> {
    fn poll_reserve(&self, id: &mut Option<u64>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        // Cloned and dropped without the lock: a waker's code is the caller's.
        let waker = cx.waker().clone();
        let mut guard = self.lock();
        let state = &mut *guard;
        let room = &mut state.room;
        let is_possible = !room.is_closed() && room.config().max_size > 0;
        let waiters = &mut state.reservation_waiters;
        let (found, unused) = waiters.poll(is_possible, || room.reserve(), id, waker);
        drop(guard);
        drop(unused);
        found
    }

    fn cancel_reserve(&self, id: u64) {
        let waker = self.lock().reservation_waiters.remove(id);
        drop(waker); // without the lock
    }

    fn unreserve(&self) {
        self.with_lock(|_, state, _| state.room.unreserve());
    }
}
