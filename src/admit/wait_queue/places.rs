//! Places in the queue: whether a request may wait, and which waiters it would go before.
//!
//! Nothing is changed here, so a request can be rejected before anything is indexed for it.

use std::hash::Hash;

use super::discipline::Newcomer;
use super::{WaitQueue, lanes};
use crate::admit::nanos::Nanos;
use crate::admit::waiters::WaitLimits;
use crate::admit::{RejectReason, Ticket};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Returns the place of a request that may wait: a free one (`None`), or that of a waiter which it displaces.
    ///
    /// # Errors
    ///
    /// The reason why there is none.
    #[inline]
    pub(crate) fn place_for<N>(
        &self,
        ticket: &Ticket,
        lane: u32,
        arrival: Nanos,
        now: Nanos,
    ) -> Result<Option<u32>, RejectReason<N>> {
        if ticket.patient {
            return Ok(None);
        }
        // Before the room's own bound: it says more, and displacing another tenant's waiter would not help.
        if let Some(max) = self.base.config.max_size_per_tenant
            && self
                .tenants
                .get(&ticket.tenant)
                .map_or(0, |&waiting| waiting)
                >= max
        {
            return Err(RejectReason::TenantFull);
        }
        let full_partition = self.full_partition(lane);
        if full_partition.is_none() && self.base.has_room() {
            return Ok(None);
        }
        let config = &self.base.config;
        if !config.displace {
            return Err(RejectReason::Full);
        }
        let level = self.level_of(ticket.priority, arrival, now);
        let tenant = &ticket.tenant;
        // In a full partition, one of its own waiters has to go: that makes room in both.
        let displaced = match (full_partition, &self.eviction) {
            (Some(partition), _) => self
                .partitions
                .displaced_by(partition, level, tenant, config),
            (None, Some(order)) => order.displaced_by(level, tenant, config),
            (None, None) => {
                // Strictly lower: among equals, the first to arrive stays.
                let is_lower = |&idx: &u32| self.waiters.meta(idx).level > level;
                self.by_level.lowest_and_latest().filter(is_lower)
            }
        };
        displaced.map(Some).ok_or(RejectReason::Full)
    }

    /// The partition of a lane, if it is full by its own bound.
    #[inline]
    fn full_partition(&self, lane: u32) -> Option<u32> {
        // Most capacities have no partition with a bound: spares looking up the lane.
        if !self.lanes.have_bounds() {
            return None;
        }
        let partition = self.lanes.partition(lane);
        (!self.partitions.has_room(partition)).then_some(partition.id)
    }

    /// What decides on the place of a request that is not queued.
    pub(crate) fn newcomer<'a>(
        &self,
        ticket: &'a Ticket,
        limits: WaitLimits,
        now: Nanos,
    ) -> Newcomer<'a> {
        Newcomer {
            key: self.base.key_if_queued(ticket, limits),
            level: self.level_of(ticket.priority, limits.arrival, now),
            tenant: &ticket.tenant,
            cost: u128::from(ticket.cost.max(1)),
            end: limits.end(self.waiters.bounds.of(ticket.patient).max_wait),
        }
    }

    /// Whether a request would go before the best waiter of a group, if it were queued now.
    pub(crate) fn newcomer_goes_before(
        &self,
        (ticket, limits): (&Ticket, WaitLimits),
        lane: u32,
        best: lanes::Head,
        now: Nanos,
    ) -> bool {
        let newcomer = self.newcomer(ticket, limits, now);
        let config = &self.base.config;
        self.lanes
            .newcomer_goes_before(&self.waiters, newcomer, lane, best, config)
    }
}
