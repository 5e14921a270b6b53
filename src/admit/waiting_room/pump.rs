//! The scheduler, which grants free slots to the best waiters that they can serve.

use super::WaitingRoom;
use crate::admit::wait_queue::lanes::{Head, Scope};
use crate::admit::{Capacity, LeaseError, PoolId, RejectReason, WakeList, ask};

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Grants free slots to the best waiters in `scope`, until the free slots can't serve any of them.
    ///
    /// The loop ends whatever the capacity answers. Each round either answers a waiter, blocks a group for the rest of
    /// this pump, or unblocks groups. A group is unblocked only once between two of its waiters that are served.
    pub(super) fn pump(&mut self, capacity: &C, scope: Scope, wakes: &mut WakeList<W>) {
        self.pumps += 1;
        let pump = self.pumps;
        // This pump looks at all groups, so it covers waiters that returned to their lanes.
        if matches!(scope, Scope::All) {
            self.unparked = false;
        }
        while let Some(best) = self.queue.best(scope, pump) {
            if matches!(scope, Scope::All)
                && self.higher_ranked_is_blocked(capacity, best, pump, wakes)
            {
                continue;
            }
            match self.lease_for(capacity, best.idx) {
                Ok((lease, pool)) => {
                    let is_granted = self.hand_over(capacity, best, (lease, pool), pump, wakes);
                    // The slot that was released is granted, and every other free slot has a release of its own. With
                    // reserves the loop goes on, because a waiter that was promoted may use a reserved slot.
                    if is_granted && scope.is_about(pool) && self.base().reserves.is_empty() {
                        return;
                    }
                }
                // A group is busy as a whole, because all its waiters need the same slots.
                Err(LeaseError::Busy) => self.queue.block(best.group, pump),
                Err(LeaseError::Unservable(why)) => {
                    self.reject_idx(best.idx, RejectReason::Unservable(why), wakes);
                }
            }
        }
    }

    #[inline(always)]
    pub(super) fn lease_for(
        &self,
        capacity: &C,
        idx: u32,
    ) -> Result<(C::Lease, PoolId), LeaseError<C::Unservable>> {
        let kept = self.base().kept_above(self.waiters().meta(idx).level);
        ask::lease(capacity, &self.waiters().payload(idx).demand, kept)
    }

    /// Grants a slot to the best waiter, unless a better waiter needs the slot or it comes too late. Returns `true` if
    /// it was granted.
    #[inline]
    fn hand_over(
        &mut self,
        capacity: &C,
        best: Head,
        (lease, pool): (C::Lease, PoolId),
        pump: u64,
        wakes: &mut WakeList<W>,
    ) -> bool {
        // Another thread may have released this slot after a better waiter for it was found busy.
        if self.queue.unblock_better(pool, best, pump) {
            // The better waiter is the best of the next round.
            self.give_back(capacity, lease);
            return false;
        }
        self.queue.on_progress(best.group);
        if self.base().is_hopeless(self.waiters().meta(best.idx)) {
            // The slot goes back, because the next waiter may need to lease it with another demand.
            self.give_back(capacity, lease);
            self.reject_idx(best.idx, RejectReason::DeadlinePassed, wakes);
            return false;
        }
        self.grant(best.idx, (lease, pool), wakes);
        true
    }

    /// Returns `true` if the best waiter of another discipline finds no slot, or can never be served. Its group is then
    /// blocked, or the waiter rejected. The next round looks at the next waiters of that discipline, which may go
    /// before `best`.
    ///
    /// Without this, a waiter without a slot could keep others of its discipline from a slot that `best` then gets. A
    /// pump about one pool does without it, because the slots of one pool serve the heads of all disciplines alike.
    fn higher_ranked_is_blocked(
        &mut self,
        capacity: &C,
        best: Head,
        pump: u64,
        wakes: &mut WakeList<W>,
    ) -> bool {
        for head in self.queue.heads_of_other_disciplines(best, pump) {
            match self.lease_for(capacity, head.idx) {
                // The lease was only a test, so the slot goes back.
                Ok((lease, _)) => self.give_back(capacity, lease),
                Err(LeaseError::Busy) => {
                    self.queue.block(head.group, pump);
                    return true;
                }
                Err(LeaseError::Unservable(why)) => {
                    self.reject_idx(head.idx, RejectReason::Unservable(why), wakes);
                    return true;
                }
            }
        }
        false
    }
}
