//! Giving memory back after a burst, by the rule of [`trim`](super::super::trim).

use std::hash::Hash;
#[cfg(feature = "batch")]
use std::time::Instant;

use super::WaitQueue;
use crate::admit::nanos::Nanos;
#[cfg(feature = "batch")]
use crate::admit::trim::INTERVAL;
use crate::admit::trim::KEPT;

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Gives memory back if there is no entry left. To be called after one was taken out.
    #[inline]
    pub(crate) fn trim_if_empty(&mut self) {
        if self.waiters.is_empty() && self.waiters.capacity() > KEPT {
            self.trim_empty();
        }
    }

    fn trim_empty(&mut self) {
        let capacity = self.waiters.capacity();
        // Begins a new measurement, so it is asked last.
        if self.base.high_water.is_excess(capacity, 0) {
            self.trim();
            // Otherwise the lanes are kept for what tenants owe in them.
            if !self.lanes.have_debts() {
                // Without a waiter there is nothing to link again.
                self.clear_links();
            }
        }
    }

    /// Gives memory back if few requests have waited for a while. To be called when one arrives.
    #[inline]
    pub(crate) fn trim_if_due(&mut self, now: Nanos) {
        let capacity = self.waiters.capacity();
        if self.base.high_water.is_due(capacity, now)
            && self.base.high_water.look(capacity, self.base.waiting, now)
        {
            self.trim();
        }
    }

    /// Gives back what the present waiters do not need. Their order stays.
    #[cold]
    fn trim(&mut self) {
        self.waiters.trim();
        self.lanes.trim(&mut self.waiters);
        self.partitions.trim(&self.waiters);
        if let Some(order) = &mut self.eviction {
            order.trim(&self.waiters);
        }
        self.tenants.shrink_to_fit();
        if let Some(slots) = &mut self.tenant_slots {
            slots.trim();
        }
    }

    /// Gives memory back, or says when to look again; `None`: not before another item waits. For a timer that has nothing
    /// else to do.
    #[cfg(feature = "batch")]
    pub(crate) fn trim_idle(&mut self, now: Instant) -> Option<Instant> {
        self.trim_if_empty();
        let keeps_more = self.base.waiting == 0 && self.waiters.capacity() > KEPT;
        keeps_more.then(|| now + INTERVAL)
    }
}
