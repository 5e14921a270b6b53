//! `concurrency = "inner"`: slots that come from the inner service's readiness.
//!
//! The capacity's limit is 0, so that no arrival finds a slot by itself. The waiter at the head of the room polls the
//! inner service; each time it is ready, one slot is offered, to the waiter that is the head by then:
//!
//! ```text
//! free ── the inner service is ready ──> claimed ── the waiter has called it, or is gone ──> free
//! ```
//!
//! While the readiness is claimed, no waiter polls the inner service. Exactly one lease is given for one readiness:
//! slots are offered, and leases released, under the gate's lock only, so the limit that is raised for an offer can't
//! meet a lease that comes back at the same moment.

use std::task::Waker;
use std::time::Instant;

use super::state::Shared;
use super::with_lock::WithLock;
use crate::admit::{Capacity, WaiterId, WaitingRoom, WakeList};
use crate::sync::Arc;

/// Whether the readiness is claimed, and which waiter knows that it is the head. Kept under the gate's lock.
pub(crate) struct InnerReady<C> {
    /// Changes the capacity's number of slots.
    set_limit: fn(&C, usize) -> bool,
    /// A request was given a slot and has not called the inner service yet.
    is_claimed: bool,
    /// The waiter that was notified last that it is the head. `None` while the readiness is claimed.
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

    /// Whether the head may poll the inner service.
    pub(super) fn is_free(&self) -> bool {
        !self.is_claimed
    }

    /// Gives one slot to the head of the room. Without a waiter there is none, and the readiness stays free.
    pub(super) fn offer<W>(
        &mut self,
        capacity: &C,
        room: &mut WaitingRoom<C, W>,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) {
        // Another head was faster: one lease for one readiness.
        if self.is_claimed {
            return;
        }
        // Stable under the lock: leases come back under it, too.
        let before = capacity.usage().in_use;
        (self.set_limit)(capacity, before + 1);
        room.on_capacity_grown(capacity, now, wakes);
        (self.set_limit)(capacity, 0); // closed again for arrivals
        self.is_claimed = capacity.usage().in_use > before;
    }

    /// The head is to be notified, even if it was before.
    pub(super) fn forget_notified(&mut self) {
        self.notified = None;
    }

    /// A waiter that arrived as the head need not be woken to learn that it is.
    pub(super) fn on_arrival(&mut self, waiter: WaiterId, head: Option<WaiterId>) {
        if head == Some(waiter) {
            self.notified = head;
        }
    }

    /// Wakes the head if it does not know that it may poll the inner service.
    pub(super) fn notify_head(
        &mut self,
        room: &mut WaitingRoom<C, Waker>,
        wakes: &mut WakeList<Waker>,
    ) {
        if self.is_claimed {
            self.notified = None; // the next head is to be notified
            return;
        }
        let head = room.head();
        // Without a waker it is being polled just now, and looks for itself.
        if head != self.notified
            && let Some(waker) = head.and_then(|head| room.take_waker(head))
        {
            wakes.push(waker);
        }
        self.notified = head;
    }
}

/// The inner service's readiness, claimed by a request that has not called it yet.
///
/// Dropping it lets the next head poll the inner service. The request's own slot is still taken then.
pub(crate) struct ReadinessClaim<C: Capacity> {
    shared: Arc<Shared<C>>,
}

impl<C: Capacity> ReadinessClaim<C> {
    /// The claim of a request that was given a slot.
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
    /// The readiness is used up, or the request that had it is gone.
    pub(super) fn end_claim(&self) {
        // The head is notified on the way out of the lock.
        self.with_lock(|_, state, _| {
            if let Some(inner_ready) = &mut state.inner_ready {
                inner_ready.is_claimed = false;
            }
        });
    }
}
