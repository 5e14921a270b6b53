//! Methods that give memory back after a burst, by the rule of [`trim`](super::super::trim).

use std::hash::Hash;
use std::time::Instant;

use super::WaitQueue;
use super::lane_order::LaneOrder;
use super::order::{Levels, Order};
use crate::admit::nanos::Nanos;
use crate::admit::trim::{INTERVAL, KEPT};
use crate::admit::waiters::Waiters;

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Gives memory back if the last entry is gone, and returns to the order `Levels` if the configuration allows it.
    /// Call it after an entry was taken out.
    #[inline(always)]
    pub(crate) fn trim_if_empty(&mut self) {
        if self.common.waiters.is_empty() {
            self.on_emptied();
        }
    }

    fn on_emptied(&mut self) {
        if self.common.waiters.capacity() > KEPT {
            self.trim_empty();
        }
        if let Order::Lanes(order) = &self.order
            && !order.lanes.are_needed
        {
            self.order = Order::Levels(Levels::of(None));
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
        let counters = &mut self.common.base.counters;
        let high_water = &mut counters.high_water;
        if high_water.is_due(capacity, now) && high_water.look(capacity, counters.waiting, now) {
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

    /// Gives memory back if the queue is empty, for a timer that has nothing else to do. Returns the next time to look,
    /// or `None` if that can wait for the next waiter.
    pub(crate) fn trim_idle(&mut self, now: Instant) -> Option<Instant> {
        self.trim_if_empty();
        // Entries with an outcome that is yet to be taken still keep the memory.
        let keeps_more = self.is_empty() && self.common.waiters.capacity() > KEPT;
        keeps_more.then(|| now + INTERVAL)
    }
}

impl<L: Clone + Eq + Hash> LaneOrder<L> {
    /// Gives back the memory that the present waiters can do without. Their order stays.
    fn trim<T>(&mut self, waiters: &mut Waiters<T>) {
        self.lanes.trim(waiters);
        for partition in self.partitions.values_mut() {
            partition.waiters.trim(waiters);
        }
        if let Some(order) = &mut self.eviction {
            order.trim(waiters);
        }
        self.tenants.shrink_to_fit();
        if let Some(slots) = &mut self.tenant_slots {
            slots.trim();
        }
    }
}
