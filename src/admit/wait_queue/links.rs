//! Linking and unlinking of waiters.
//!
//! A waiter is linked in its lane, by level and, as far as the configuration needs them, in the promotions, its partition
//! and the count of its tenant. It is unlinked by the same rules: what is asked here of the configuration must not change
//! in between, except with a [rebuild](super::rebuild).

use std::hash::Hash;

use super::WaitQueue;
use super::aging::next_promotion;
use super::discipline::FlowState;
use crate::admit::nanos::Nanos;
use crate::admit::waiters::{WaitLimits, WaiterId, WaiterMeta};
use crate::admit::{Discipline, Partition, Priority, Tenant, Ticket};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Adds a waiter to a lane, whether or not there is a place for it.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        ticket: Ticket,
        limits: WaitLimits,
        lane: u32,
        now: Nanos,
        payload: impl FnOnce(WaiterId) -> T,
    ) -> WaiterId {
        let priority = self.base.config.levels.clamp(ticket.priority);
        // The key counts as given from here on: nothing rejects the request any more.
        let key = self.base.next_key(&ticket, limits);
        let meta = WaiterMeta::new(key, priority, limits, ticket);
        let id = self.waiters.insert(meta, payload);
        if self.base.has_slots {
            self.waiters.meta_mut(id.idx).set_entered(now);
        }
        self.link(id.idx, lane, None, now);
        id
    }

    /// Links a waiter in a lane, and wherever else it has to be found again. `flow` is the state of its tenant's flow, if
    /// it had one before a reconfiguration.
    #[inline]
    pub(super) fn link(&mut self, idx: u32, lane: u32, flow: Option<FlowState>, now: Nanos) {
        let meta = self.waiters.meta(idx);
        // It may have waited before, in another room: promotions by now count.
        let level = self.level_of(Priority(meta.priority), meta.limits.arrival, now);
        let meta = self.waiters.meta_mut(idx);
        (meta.level, meta.lane, meta.is_parked) = (level, lane, false);
        let is_patient = meta.is_patient;
        self.enter_lane(idx, flow);
        self.base.on_queued(is_patient);
        if self.base.config.max_size_per_tenant.is_some() && !is_patient {
            let tenant = self.waiters.meta(idx).tenant().clone();
            *self.tenants.entry(tenant).or_default() += 1;
        }
        self.timeouts.push(&mut self.waiters, idx);
        self.link_level(idx);
    }

    /// Links a waiter in what is kept by level, but for its lane: a promotion does this again.
    #[inline]
    pub(super) fn link_level(&mut self, idx: u32) {
        self.by_level.push(&mut self.waiters, idx);
        if self.has_rare_links() {
            self.link_rare(idx);
        }
    }

    /// Undoes [`link_level`](Self::link_level) for a waiter that waits no more, or at another level now.
    #[inline]
    pub(super) fn unlink_level(&mut self, idx: u32, level: u8) {
        self.by_level.remove(&mut self.waiters, idx, level);
        if self.has_rare_links() {
            self.unlink_rare(idx, level);
        }
    }

    /// Returns `true` if waiters may be linked in a partition, in an order of eviction or in the promotions.
    #[inline]
    fn has_rare_links(&self) -> bool {
        self.lanes.have_bounds()
            || self.eviction.is_some()
            || self.base.config.promote_after.is_some()
    }

    fn link_rare(&mut self, idx: u32) {
        let meta = self.waiters.meta(idx);
        let (level, is_patient) = (meta.level, meta.is_patient);
        // A patient waiter takes no place, and loses none.
        if !is_patient {
            self.link_place(idx);
        }
        let promotion = next_promotion(&self.waiters, &self.base.config, idx, level);
        self.promotions.extend(promotion);
    }

    fn link_place(&mut self, idx: u32) {
        if let Some(partition) = self.bounded_partition(idx) {
            let config = &self.base.config;
            self.partitions
                .push(&mut self.waiters, partition, idx, config);
        }
        if let Some(order) = &mut self.eviction {
            order.push(&mut self.waiters, idx, &self.base.config);
        }
    }

    fn unlink_rare(&mut self, idx: u32, level: u8) {
        if !self.waiters.meta(idx).is_patient {
            self.unlink_place(idx, level);
        }
        if let Some(promotion) = next_promotion(&self.waiters, &self.base.config, idx, level) {
            self.promotions.remove(&promotion);
        }
    }

    fn unlink_place(&mut self, idx: u32, level: u8) {
        if let Some(Partition { id, .. }) = self.bounded_partition(idx) {
            let config = &self.base.config;
            self.partitions
                .remove(&mut self.waiters, id, idx, level, config);
        }
        if let Some(order) = &mut self.eviction {
            order.remove(&mut self.waiters, idx, level, &self.base.config);
        }
    }

    /// The waiter's partition, if that has a bound of its own.
    fn bounded_partition(&self, idx: u32) -> Option<Partition> {
        let partition = self.lanes.partition(self.waiters.meta(idx).lane);
        partition.max_size.is_some().then_some(partition)
    }

    /// Ends a wait, with a slot if the waiter `is_served`. Its entry stays.
    #[inline]
    pub(crate) fn unlink(&mut self, idx: u32, is_served: bool) {
        let meta = self.waiters.meta_mut(idx);
        meta.waits = false;
        let level = meta.level;
        self.leave_lane(idx, level, is_served);
        self.unlink_otherwise(idx, level);
    }

    /// Undoes [`link`](Self::link) for a waiter that was at this level, but for its lane.
    #[inline]
    fn unlink_otherwise(&mut self, idx: u32, level: u8) {
        let is_patient = self.waiters.meta(idx).is_patient;
        self.base.on_unlinked(is_patient);
        if self.base.config.max_size_per_tenant.is_some() && !is_patient {
            self.unlink_tenant(idx);
        }
        self.timeouts.remove(&mut self.waiters, idx);
        self.unlink_level(idx, level);
    }

    /// Gives a waiter another ticket and another lane, and links it where these lead.
    ///
    /// Its flow keeps the service that it has had, unless it is another one now. Otherwise a tenant whose only waiter has
    /// its ticket changed time and again would never be served.
    pub(crate) fn replace_ticket(
        &mut self,
        idx: u32,
        ticket: Ticket,
        limits: WaitLimits,
        lane: u32,
        now: Nanos,
    ) {
        let priority = self.base.config.levels.clamp(ticket.priority);
        let level = self.level_of(priority, limits.arrival, now);
        let flow = self.flow_kept(idx, lane, level, &ticket.tenant);
        let old_level = self.waiters.meta(idx).level;
        let old_tenant = self.leave_lane_to_move(idx, old_level);
        self.unlink_otherwise(idx, old_level);
        self.waiters.replace_ticket(idx, priority, limits, ticket);
        if self.base.has_slots {
            self.waiters.meta_mut(idx).set_entered(now);
        }
        self.link(idx, lane, flow, now);
        if let Some(tenant) = old_tenant {
            self.settle_tenant(&tenant, None);
        }
    }

    /// Returns the state of a waiter's flow, if it stays in it with this lane, level and tenant.
    fn flow_kept(&self, idx: u32, lane: u32, level: u8, tenant: &Tenant) -> Option<FlowState> {
        let meta = self.waiters.meta(idx);
        // A parked waiter is in no flow.
        if self.is_plain || meta.is_parked || (meta.lane, meta.level) != (lane, level) {
            return None;
        }
        let takes_turns = self.lanes.discipline(lane) == Discipline::Fair;
        if takes_turns && meta.tenant() != tenant {
            return None;
        }
        self.lanes.flow_state(&self.waiters, idx)
    }

    /// Takes a waiter out of the count of its tenant.
    fn unlink_tenant(&mut self, idx: u32) {
        let tenant = self.waiters.meta(idx).tenant();
        if let Some(waiting) = self.tenants.get_mut(tenant) {
            *waiting -= 1;
            if *waiting == 0 {
                // Nothing is kept of a tenant without waiters.
                self.tenants.remove(tenant);
            }
        }
    }
}
