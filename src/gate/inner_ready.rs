//! Slots that come from the inner service's readiness, for `concurrency = "inner"`.
//!
//! The capacity's limit is 0, so that arrivals always have to wait. The waiter at the head of the room polls the inner
//! service. Each time the service is ready, one slot is offered to the waiter that is the head by then:
//!
//! ```text
//! free ── the inner service is ready ──> claimed ── the waiter has called it, or is gone ──> free
//! ```
//!
//! While the readiness is claimed, waiters leave the inner service alone, and exactly one lease is given for one
//! readiness. Slots are offered and leases released only under the gate's lock. So the limit that is raised for an
//! offer can't meet a lease that comes back at the same moment.

use std::task::Waker;
use std::time::Instant;

use super::state::Shared;
use super::with_lock::WithLock;
use crate::admit::{Capacity, WaiterId, WaitingRoom, WakeList};
use crate::sync::Arc;

/// The claim on the inner service's readiness, and the waiter that was notified as the head. Kept under the gate's
/// lock.
pub(crate) struct InnerReady<C> {
    /// The function that changes the capacity's number of slots.
    set_limit: fn(&C, usize) -> bool,
    /// `true` while a request has a slot from the readiness and has yet to call the inner service.
    is_claimed: bool,
    /// The waiter that was last notified that it is the head. `None` while the readiness is claimed.
    notified: Option<WaiterId>,
}

impl<C: Capacity> InnerReady<C> {
    pub(super) fn new(set_limit: fn(&C, usize) -> bool) -> Self {
        Self {
            set_limit,
            is_claimed: false,
            notified: None,
        }
    }

    /// Returns `true` if the head may poll the inner service.
    pub(super) fn is_free(&self) -> bool {
        !self.is_claimed
    }

    /// Gives one slot to the head of the room. If the room is empty, the readiness stays free.
    pub(super) fn offer<W>(
        &mut self,
        capacity: &C,
        room: &mut WaitingRoom<C, W>,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) {
        // Another head was faster, and one readiness gives one lease.
        if self.is_claimed {
            return;
        }
        // This number is stable, because leases also come back under the lock.
        let before = capacity.usage().in_use;
        (self.set_limit)(capacity, before + 1);
        room.on_capacity_grown(capacity, now, wakes);
        (self.set_limit)(capacity, 0); // arrivals find every slot taken again
        self.is_claimed = capacity.usage().in_use > before;
    }

    /// Forgets the waiter that was notified, so that the head is notified even if it was before.
    pub(super) fn forget_notified(&mut self) {
        self.notified = None;
    }

    /// Marks a waiter that arrived as the head as notified, because it finds out by itself.
    pub(super) fn on_arrival(&mut self, waiter: WaiterId, head: Option<WaiterId>) {
        if head == Some(waiter) {
            self.notified = head;
        }
    }

    /// Wakes the head, unless it knows already that it may poll the inner service.
    pub(super) fn notify_head(
        &mut self,
        room: &mut WaitingRoom<C, Waker>,
        wakes: &mut WakeList<Waker>,
    ) {
        if self.is_claimed {
            self.notified = None; // so that the next head is notified
            return;
        }
        let head = room.head();
        // A head without a waker is being polled just now, and looks for itself.
        if head != self.notified
            && let Some(waker) = head.and_then(|head| room.take_waker(head))
        {
            wakes.push(waker);
        }
        self.notified = head;
    }
}

/// The claim of a request on the inner service's readiness, until the request has called the service.
///
/// Dropping it lets the next head poll the inner service. The request's own slot is still taken then.
pub(crate) struct ReadinessClaim<C: Capacity> {
    shared: Arc<Shared<C>>,
}

impl<C: Capacity> ReadinessClaim<C> {
    /// Creates the claim of a request that was given a slot.
    pub(super) fn new(shared: Arc<Shared<C>>) -> Self {
        Self { shared }
    }
}

impl<C: Capacity> Drop for ReadinessClaim<C> {
    fn drop(&mut self) {
        self.shared.end_claim();
    }
}

impl<C: Capacity> Shared<C> {
    /// Ends the claim, because the readiness is used up or the request that held it is gone.
    pub(super) fn end_claim(&self) {
        // The head is notified when the lock is released.
        self.with_lock(|_, state, _| {
            if let Some(inner_ready) = &mut state.inner_ready {
                inner_ready.is_claimed = false;
            }
        });
    }
}
