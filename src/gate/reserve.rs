//! Places in the waiting room that are reserved before their request arrives.
//!
//! Tower's contract is that `poll_ready` reserves the resources that `call` needs. If it reserved a slot, a clone that
//! is ready and then idle would hold up all others. A place in the waiting room leaves the slot to other requests.
//!
//! The gate and the batch queue reserve in the same way, each behind its own lock, which implements
//! [`ReservationHost`].

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use super::Gate;
use super::state::Shared;
use super::with_lock::WithLock;
use crate::admit::{Capacity, WakeList};
use crate::sync::Arc;

/// A place in the waiting room, kept for a request that has yet to arrive. Dropping it frees the place.
#[must_use = "a reservation that is dropped is free again"]
pub struct Reservation<C: Capacity>(pub(crate) Reserved<Shared<C>>);

impl<C: Capacity> fmt::Debug for Reservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}

/// The future of [`Gate::reserve`].
#[must_use = "futures do nothing unless polled"]
pub struct Reserve<C: Capacity>(Reserving<Shared<C>>);

impl<C: Capacity> Reserve<C> {
    pub(super) fn new(gate: &Gate<C>) -> Self {
        Self(Reserving::new(Arc::clone(gate.shared())))
    }
}

impl<C: Capacity> Future for Reserve<C> {
    type Output = Option<Reservation<C>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_reserve(cx).map(|found| found.map(Reservation))
    }
}

impl<C: Capacity> fmt::Debug for Reserve<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").finish_non_exhaustive()
    }
}

/// A waiting room behind a lock, in which places can be reserved.
pub(crate) trait ReservationHost {
    /// Reserves a place, or leaves a waker under the number in `id`. Returns `None` if waiting for a place is futile.
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
    /// Returns `true` if the place belongs to `host`.
    pub(super) fn is_of(&self, host: &Arc<H>) -> bool {
        self.host.as_ref().is_some_and(|own| Arc::ptr_eq(own, host))
    }

    /// Leaves the place to the arrival that unreserves it under the lock.
    pub(crate) fn hand_over(mut self) {
        self.host = None; // so that the destructor keeps the place
    }
}

impl<H: ReservationHost> Drop for Reserved<H> {
    fn drop(&mut self) {
        if let Some(host) = &self.host {
            host.unreserve();
        }
    }
}

/// A caller that waits for a place of `H` to reserve.
pub(crate) struct Reserving<H: ReservationHost> {
    host: Arc<H>,
    /// Its number among the waiters, once it had to wait.
    id: Option<u64>,
}

impl<H: ReservationHost> Reserving<H> {
    pub(crate) fn new(host: Arc<H>) -> Self {
        Self { host, id: None }
    }

    /// Waits until a place is free and reserves it. Returns `None` if waiting for a place is futile.
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
            self.host.cancel_reserve(id); // a waker that was woken is gone already
        }
    }
}

/// The wakers of callers that wait for a place to reserve, in arbitrary order.
#[derive(Debug, Default)]
pub(crate) struct ReservationWaiters {
    wakers: BTreeMap<u64, Waker>,
    /// The last number that was given to a waker.
    last_id: u64,
}

impl ReservationWaiters {
    /// Reserves a place with `reserve`, or keeps `waker` under the number in `id`.
    ///
    /// Also returns the waker that is not needed. The caller drops it without the lock. The outcome is `None` if
    /// `is_possible` is `false`.
    pub(crate) fn poll(
        &mut self,
        is_possible: bool,
        reserve: impl FnOnce() -> bool,
        id: &mut Option<u64>,
        waker: Waker,
    ) -> (Poll<Option<()>>, Option<Waker>) {
        // Waiting is futile, so the caller may go on. Its call then reports the reason.
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

    /// Wakes all callers, so that they look again for a place.
    pub(crate) fn wake_all(&mut self, wakes: &mut WakeList<Waker>) {
        let all = std::mem::take(&mut self.wakers);
        all.into_values().for_each(|waker| wakes.push(waker));
    }
}

impl<C: Capacity> ReservationHost for Shared<C> {
    fn poll_reserve(&self, id: &mut Option<u64>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        // The waker is cloned and dropped without the lock, because its code is the caller's.
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
        drop(waker); // after the lock was released
    }

    fn unreserve(&self) {
        self.with_lock(|_, state, _| state.room.unreserve());
    }
}
