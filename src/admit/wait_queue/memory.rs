//! Methods that give memory back after a burst, by the rule of [`trim`](super::super::trim).

use std::hash::Hash;
#[cfg(feature = "batch")]
use std::time::Instant;

use super::WaitQueue;
use super::lane_order::LaneOrder;
use super::order::Order;
use crate::admit::nanos::Nanos;
#[cfg(feature = "batch")]
use crate::admit::trim::INTERVAL;
use crate::admit::trim::KEPT;
use crate::admit::waiters::Waiters;

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Gives memory back if the last entry is gone. Call it after an entry was taken out.
    #[inline]
    pub(crate) fn trim_if_empty(&mut self) {
        if self.common.waiters.is_empty() && self.common.waiters.capacity() > KEPT {
            self.trim_empty();
        }
    }

    fn trim_empty(&mut self) {
        let capacity = self.common.waiters.capacity();
        // The call begins a new measurement, so it comes after all other conditions.
        if self.common.base.counters.high_water.is_excess(capacity, 0) {
            self.trim();
            let keeps_debts = match &self.order {
                Order::Levels(_) => false,
                // The lanes are kept if tenants have debts in them.
                Order::Lanes(order) => order.lanes.have_debts(),
            };
            if !keeps_debts {
                let now = self.common.base.clock.now;
                self.rebuild(Vec::new(), now);
            }
        }
    }

    /// Gives memory back if few requests have waited for a while. Call it when a request arrives.
    #[inline]
    pub(crate) fn trim_if_due(&mut self, now: Nanos) {
        let capacity = self.common.waiters.capacity();
        if self.common.base.counters.high_water.is_due(capacity, now)
            && self.common.base.counters.high_water.look(
                capacity,
                self.common.base.counters.waiting,
                now,
            )
        {
            self.trim();
        }
    }

    /// Gives back the memory that the present waiters can do without. Their order stays.
    #[cold]
    fn trim(&mut self) {
        let waiters = &mut self.common.waiters;
        waiters.trim();
        if let Order::Lanes(order) = &mut self.order {
            order.trim(waiters);
        }
    }

    /// Gives memory back if the queue is idle, and returns the next time to look again. Returns `None` if there is
    /// nothing more to give back until another item waits. A timer calls this when it is idle.
    #[cfg(feature = "batch")]
    pub(crate) fn trim_idle(&mut self, now: Instant) -> Option<Instant> {
        self.trim_if_empty();
        let keeps_more =
            self.common.base.counters.waiting == 0 && self.common.waiters.capacity() > KEPT;
        keeps_more.then(|| now + INTERVAL)
    }
}

impl<L: Clone + Eq + Hash> LaneOrder<L> {
    /// Gives back the memory that the present waiters can do without. Their order stays.
    fn trim<T>(&mut self, waiters: &mut Waiters<T>) {
        self.lanes.trim(waiters);
        self.partitions.trim(waiters);
        if let Some(order) = &mut self.eviction {
            order.trim(waiters);
        }
        self.tenants.shrink_to_fit();
        if let Some(slots) = &mut self.tenant_slots {
            slots.trim();
        }
    }
}
