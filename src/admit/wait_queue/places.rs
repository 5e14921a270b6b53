//! Decisions about places, which tell if a request may wait and which waiters it would go before.
//!
//! All methods here only read, so a request can be rejected before anything is indexed for it.

use std::hash::Hash;

use super::discipline::Newcomer;
use super::lane_order::LaneOrder;
use super::order::Order;
use super::{Common, WaitQueue};
use crate::admit::nanos::Nanos;
use crate::admit::room_base::is_requeued;
use crate::admit::waiters::WaitLimits;
use crate::admit::{Partition, Priority, RejectReason, Ticket};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Returns `None` if a place is free for the request, or the waiter that it displaces.
    ///
    /// # Errors
    ///
    /// Returns the reason why the request may not wait.
    #[inline]
    pub(crate) fn place_for<N>(
        &self,
        ticket: &Ticket,
        lane: u32,
        arrival: Nanos,
        now: Nanos,
    ) -> Result<Option<u32>, RejectReason<N>> {
        let base = &self.common.base;
        // A request that had a slot was admitted before. It waits for the slot that it gave back, so at most as many are above
        // the bounds as there are slots.
        let comes_back = base.has_slots && is_requeued(ticket) && !ticket.left_slot;
        if ticket.patient || comes_back {
            return Ok(None);
        }
        match &self.order {
            Order::Levels(_) => self.place_by_level(ticket),
            Order::Lanes(order) => order.place_for(&self.common, ticket, lane, (arrival, now)),
        }
    }

    /// Decides on the place of a request if waiters are evicted in the order of their levels. Returns `None` for a free
    /// place.
    #[inline]
    fn place_by_level<N>(&self, ticket: &Ticket) -> Result<Option<u32>, RejectReason<N>> {
        let base = &self.common.base;
        if base.has_room() || ticket.has_place {
            return Ok(None);
        }
        let Priority(level) = base.config.levels.clamp(ticket.priority);
        let displaced = base.config.displace.then(|| self.common.lower_than(level));
        displaced.flatten().map(Some).ok_or(RejectReason::Full)
    }

    /// Returns the data that decide on the position of a request that has not been queued.
    pub(crate) fn newcomer<'a>(
        &self,
        ticket: &'a Ticket,
        limits: WaitLimits,
        now: Nanos,
    ) -> Newcomer<'a> {
        let Common { base, waiters, .. } = &self.common;
        Newcomer {
            key: base.clock.key_if_queued(ticket, limits),
            level: base.level_of(ticket.priority, limits.arrival, now),
            tenant: &ticket.tenant,
            cost: u128::from(ticket.share_cost()),
            end: limits.end(waiters.bounds.of(ticket.patient).max_wait),
        }
    }
}

impl<T> Common<T> {
    /// Returns the waiter that loses its place to an arrival of this level, in a room where flows have equal claims.
    fn lower_than(&self, level: u8) -> Option<u32> {
        // The level has to be strictly lower, because among equals the first to arrive stays.
        let is_lower = |&idx: &u32| self.waiters.meta(idx).level > level;
        self.by_level.lowest_and_latest().filter(is_lower)
    }
}

impl<L: Clone + Eq + Hash> LaneOrder<L> {
    fn place_for<T, N>(
        &self,
        common: &Common<T>,
        ticket: &Ticket,
        lane: u32,
        (arrival, now): (Nanos, Nanos),
    ) -> Result<Option<u32>, RejectReason<N>> {
        let config = &common.base.config;
        let tenant = &ticket.tenant;
        // The tenant's bound is checked before the room's. Its reason says more, and displacing another tenant's waiter
        // would not help.
        if config.bounds_tenants() && self.tenants.of(tenant) >= config.max_size_of(tenant) {
            return Err(RejectReason::TenantFull);
        }
        let full_partition = self.full_partition(lane);
        if full_partition.is_none() && (common.base.has_room() || ticket.has_place) {
            return Ok(None);
        }
        if !config.displace {
            return Err(RejectReason::Full);
        }
        let level = common.base.level_of(ticket.priority, arrival, now);
        // In a full partition, one of its own waiters has to go, because that makes room in the partition and in the
        // queue.
        let displaced = match (full_partition, &self.eviction) {
            (Some(partition), _) => {
                let of = self.partitions.get(&partition);
                of.and_then(|of| of.waiters.displaced_by(level, tenant))
            }
            (None, Some(order)) => order.displaced_by(level, tenant),
            (None, None) => common.lower_than(level),
        };
        displaced.map(Some).ok_or(RejectReason::Full)
    }

    /// Returns the partition of a lane, if it is full by its own bound.
    fn full_partition(&self, lane: u32) -> Option<u32> {
        // Most capacities have only partitions without a bound, so this spares looking up the lane.
        if !self.lanes.has_bounds {
            return None;
        }
        let Partition { id, max_size, .. } = self.lanes.lane(lane).partition;
        let waiting = self.partitions.get(&id).map_or(0, |of| of.waiters.len());
        max_size.filter(|&max| waiting >= max).map(|_| id)
    }
}
