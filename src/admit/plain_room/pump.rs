//! Slots for waiters, in their order: after a release, and before a newcomer gets one.

use super::PlainRoom;
use crate::admit::room::{Room, lease, lease_for};
use crate::admit::waiters::WaitLimits;
use crate::admit::{Capacity, LeaseError, Priority, RejectReason, Ticket, WakeList};

impl<C: Capacity, W> PlainRoom<C, W> {
    /// Grants free slots to waiters, in order, as long as there are any. With `only_one`, at most one slot: exactly one was
    /// released, and every other free one has a release of its own on the way.
    ///
    /// Ends because each round but the last answers a waiter.
    pub(super) fn pump(&mut self, capacity: &C, only_one: bool, wakes: &mut WakeList<W>) {
        while let Some(idx) = self.head_idx() {
            let kept = self.base.kept_above(self.waiters.meta(idx).level);
            match lease_for(
                capacity,
                self.waiters.payload_mut(idx),
                kept,
                &mut self.missed_slot,
                wakes,
            ) {
                // The slot is for the next: it may ask for it in another way.
                Ok((lease, _)) if self.base.is_hopeless(self.waiters.meta(idx)) => {
                    self.give_back(capacity, lease);
                    self.reject_idx(idx, RejectReason::DeadlinePassed, wakes);
                }
                Ok(leased) => {
                    self.grant(capacity, idx, leased, wakes);
                    // A slot that was kept may be lent by now.
                    if only_one && self.base.reserves.is_empty() {
                        return;
                    }
                }
                // One lane: what is busy for the head is busy for all.
                Err(LeaseError::Busy) => return,
                // It took no slot: the next waiter is asked for.
                Err(LeaseError::Unservable(why)) => {
                    self.reject_idx(idx, RejectReason::Unservable(why), wakes);
                }
            }
        }
    }

    /// Whether a newcomer with this ticket goes before the head. True if no request waits.
    fn goes_first(&self, ticket: &Ticket, limits: WaitLimits) -> bool {
        let Some(head) = self.head_idx().map(|head| self.waiters.meta(head)) else {
            return true;
        };
        let Priority(level) = self.base.config.levels.clamp(ticket.priority);
        let order = self.base.age_order;
        let key = self.base.key_if_queued(ticket, limits);
        (level, order.key(key)) < (head.level, order.key(head.key()))
    }

    /// Leases a slot for a newcomer, after every waiter that goes before it was offered one. `Busy`: it has to wait.
    ///
    /// Ends because each round but the last answers a waiter.
    pub(super) fn lease_in_order(
        &mut self,
        capacity: &C,
        demand: &C::Demand,
        (ticket, limits): (&Ticket, WaitLimits),
        wakes: &mut WakeList<W>,
    ) -> Result<C::Lease, LeaseError<C::Unservable>> {
        loop {
            if self.goes_first(ticket, limits) {
                let Priority(level) = self.base.config.levels.clamp(ticket.priority);
                return Ok(lease(capacity, demand, self.base.kept_above(level))?.0);
            }
            let waiting = self.base.waiting;
            self.pump(capacity, true, wakes);
            // No slot for the head, so none for the newcomer behind it.
            if self.base.waiting == waiting {
                return Err(LeaseError::Busy);
            }
        }
    }
}
