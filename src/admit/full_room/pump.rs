//! The scheduler: free slots go to the best waiters that they can serve.

use super::FullRoom;
use crate::admit::room::{Room, lease_for};
use crate::admit::wait_queue::lanes::{Head, Scope};
use crate::admit::{Capacity, LeaseError, RejectReason, WakeList};

impl<C: Capacity, W> FullRoom<C, W> {
    /// Gives free slots to the best waiters in `scope`, until there is none left that one of them could use.
    ///
    /// Ends whatever the capacity answers: each round answers a waiter, or blocks a group for the rest of this pump, or
    /// gives groups a second look, which each group gets once between two of its waiters that are served.
    pub(super) fn pump(&mut self, capacity: &C, scope: Scope, wakes: &mut WakeList<W>) {
        self.pumps += 1;
        let pump = self.pumps;
        if matches!(scope, Scope::All) {
            self.missed_slot = false;
        }
        while let Some(best) = self.queue.lanes().best(self.queue.waiters(), scope, pump) {
            if matches!(scope, Scope::All)
                && self.higher_ranked_is_blocked(capacity, best, pump, wakes)
            {
                continue;
            }
            let waiter = self.queue.waiters_mut().payload_mut(best.idx);
            match lease_for(capacity, waiter, &mut self.missed_slot, wakes) {
                Ok((lease, pool)) => {
                    let (lanes, waiters) = self.queue.lanes_mut();
                    // The slot may have come back after a better waiter for it was found blocked.
                    if lanes.unblock_better(waiters, pool, best, pump) {
                        self.give_back(capacity, lease);
                        continue;
                    }
                    lanes.on_progress(best.group);
                    self.grant(best.idx, lease, wakes);
                    // The slot that came back is taken. Every other one has a release of its own.
                    if scope.is_about(pool) {
                        return;
                    }
                }
                Err(LeaseError::Busy) => self.queue.lanes_mut().0.block(best.group, pump),
                Err(LeaseError::Unservable(why)) => {
                    self.reject_idx(best.idx, RejectReason::Unservable(why), wakes);
                }
            }
        }
    }

    /// Whether there is no slot for a better waiter of another discipline than `best`. Then that one must not keep others
    /// of its discipline, which may go before `best`, from the slot that `best` would get.
    ///
    /// Where a pump is about one pool, its slot is for each of them or for none.
    fn higher_ranked_is_blocked(
        &mut self,
        capacity: &C,
        best: Head,
        pump: u64,
        wakes: &mut WakeList<W>,
    ) -> bool {
        for head in self.queue.lanes().heads_of_other_disciplines(best, pump) {
            let waiter = self.queue.waiters_mut().payload_mut(head.idx);
            match lease_for(capacity, waiter, &mut self.missed_slot, wakes) {
                Ok((lease, _)) => self.give_back(capacity, lease),
                Err(LeaseError::Busy) => {
                    self.queue.lanes_mut().0.block(head.group, pump);
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
