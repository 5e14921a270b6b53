//! The order `Lanes`, which links waiters in lanes and in every other index that the configuration needs.
//!
//! A waiter is linked in its lane and by its level. If the configuration needs them, the promotions, the waiter's
//! partition and the count of its tenant have an entry, too. A waiter is unlinked by the same rules. So the settings
//! that these rules read must stay the same between the two, except for a [rebuild](super::rebuild).

use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, RandomState};

use super::Common;
use super::aging::{Promotion, next_promotion};
use super::discipline::FlowState;
use super::eviction::EvictionOrder;
use super::lanes::Lanes;
use super::partitions::Partitions;
use super::tenant_slots::TenantSlots;
use crate::admit::nanos::Nanos;
use crate::admit::room_base::RoomBase;
use crate::admit::waiters::WaitLimits;
use crate::admit::{Discipline, Partition, Priority, Tenant, Ticket};

/// The lanes of a queue, with the other indices of its waiters.
pub(super) struct LaneOrder<L> {
    pub(super) lanes: Lanes<L>,
    /// The waiters that will be promoted, by the time of their next promotion.
    pub(super) promotions: BTreeSet<Promotion>,
    pub(super) partitions: Partitions,
    /// The order in which waiters lose their places, if flows share these. `None` if the order of the levels is enough.
    pub(super) eviction: Option<Box<EvictionOrder>>,
    /// The number of waiters of each tenant if that is bounded, and otherwise empty.
    pub(super) tenants: HashMap<Tenant, usize>,
    /// The waiters of tenants by their slots, or `None` if the slots of a tenant are unlimited.
    pub(super) tenant_slots: Option<TenantSlots>,
}

impl<L: Clone + Eq + Hash> LaneOrder<L> {
    /// Creates an empty order, in which the clocks of flows continue from those of the `old` lanes.
    pub(super) fn new(base: &RoomBase, old: Option<&Lanes<L>>, hasher: &RandomState) -> Self {
        let config = &base.config;
        // The limit only applies to a queue with slots.
        let max = config.max_concurrent_per_tenant.filter(|_| base.has_slots);
        Self {
            lanes: match old {
                Some(old) => old.renewed(config),
                None => Lanes::new(config, base.age_order, hasher.clone()),
            },
            promotions: BTreeSet::new(),
            partitions: Partitions::default(),
            eviction: EvictionOrder::of_room(config),
            tenants: HashMap::new(),
            tenant_slots: max.map(TenantSlots::new),
        }
    }

    /// Links a waiter. `flow` is the state of its tenant's flow, if it had one before a reconfiguration.
    pub(super) fn link<T>(
        &mut self,
        common: &mut Common<T>,
        idx: u32,
        lane: u32,
        flow: Option<FlowState>,
        now: Nanos,
    ) {
        let meta = common.waiters.meta(idx);
        // The waiter may have waited in another room before, so promotions that are due by now count.
        let level = common
            .base
            .level_of(Priority(meta.priority), meta.limits.arrival, now);
        let meta = common.waiters.meta_mut(idx);
        (meta.level, meta.lane, meta.is_parked) = (level, lane, false);
        let is_patient = meta.is_patient;
        self.enter_or_park(common, idx, flow);
        if common.base.config.max_size_per_tenant.is_some() && !is_patient {
            let tenant = common.waiters.meta(idx).tenant().clone();
            *self.tenants.entry(tenant).or_default() += 1;
        }
        common.link(idx);
        if self.has_rare_links(&common.base) {
            self.link_rare(common, idx);
        }
    }

    /// Moves a waiter that was promoted from the level `old`.
    pub(super) fn change_level<T>(&mut self, common: &mut Common<T>, idx: u32, old: u8) {
        self.leave_or_unpark(common, idx, old, false);
        common.by_level.remove(&mut common.waiters, idx, old);
        // This removes the present promotion; `link_rare` adds the next one.
        self.unlink_rare(common, idx, old);
        // The tenant has another flow at the new level, so the state of the old flow does not move along.
        self.enter_or_park(common, idx, None);
        common.by_level.push(&mut common.waiters, idx);
        self.link_rare(common, idx);
    }

    /// Returns `true` if waiters may be linked in a partition, in an order of eviction or in the promotions.
    #[inline]
    fn has_rare_links(&self, base: &RoomBase) -> bool {
        self.lanes.have_bounds() || self.eviction.is_some() || base.config.promote_after.is_some()
    }

    fn link_rare<T>(&mut self, common: &mut Common<T>, idx: u32) {
        let meta = common.waiters.meta(idx);
        let (level, is_patient) = (meta.level, meta.is_patient);
        // A patient waiter takes up no place, so it cannot lose one.
        if !is_patient {
            self.link_place(common, idx);
        }
        let promotion = next_promotion(&common.waiters, &common.base.config, idx, level);
        self.promotions.extend(promotion);
    }

    fn link_place<T>(&mut self, Common { base, waiters, .. }: &mut Common<T>, idx: u32) {
        if let Some(partition) = self.bounded_partition(waiters.meta(idx).lane) {
            self.partitions.push(waiters, partition, idx, &base.config);
        }
        if let Some(order) = &mut self.eviction {
            order.push(waiters, idx, &base.config);
        }
    }

    fn unlink_rare<T>(&mut self, common: &mut Common<T>, idx: u32, level: u8) {
        if !common.waiters.meta(idx).is_patient {
            self.unlink_place(common, idx, level);
        }
        let promotion = next_promotion(&common.waiters, &common.base.config, idx, level);
        if let Some(promotion) = promotion {
            self.promotions.remove(&promotion);
        }
    }

    fn unlink_place<T>(
        &mut self,
        Common { base, waiters, .. }: &mut Common<T>,
        idx: u32,
        level: u8,
    ) {
        if let Some(Partition { id, .. }) = self.bounded_partition(waiters.meta(idx).lane) {
            let config = &base.config;
            self.partitions.remove(waiters, id, idx, level, config);
        }
        if let Some(order) = &mut self.eviction {
            order.remove(waiters, idx, level, &base.config);
        }
    }

    /// Returns a lane's partition, if that has a bound of its own.
    fn bounded_partition(&self, lane: u32) -> Option<Partition> {
        let partition = self.lanes.partition(lane);
        partition.max_size.is_some().then_some(partition)
    }

    /// Undoes [`link`](Self::link) for a waiter that was at this level. If the waiter `is_served`, it leaves with a
    /// slot.
    pub(super) fn unlink<T>(
        &mut self,
        common: &mut Common<T>,
        idx: u32,
        level: u8,
        is_served: bool,
    ) {
        self.leave_or_unpark(common, idx, level, is_served);
        self.unlink_otherwise(common, idx, level);
    }

    /// Undoes [`link`](Self::link), except for the lane.
    fn unlink_otherwise<T>(&mut self, common: &mut Common<T>, idx: u32, level: u8) {
        let is_patient = common.waiters.meta(idx).is_patient;
        if common.base.config.max_size_per_tenant.is_some() && !is_patient {
            self.unlink_tenant(common.waiters.meta(idx).tenant());
        }
        common.unlink(idx, level);
        if self.has_rare_links(&common.base) {
            self.unlink_rare(common, idx, level);
        }
    }

    /// Gives a waiter another ticket and another lane, and links it at the position that follows from them.
    ///
    /// The waiter's flow keeps the service that it has had, unless the waiter moves to another flow. Otherwise a tenant
    /// whose only waiter has its ticket changed time and again would never be served.
    pub(super) fn replace_ticket<T>(
        &mut self,
        common: &mut Common<T>,
        idx: u32,
        (ticket, limits): (Ticket, WaitLimits),
        lane: u32,
        now: Nanos,
    ) {
        let level = common.base.level_of(ticket.priority, limits.arrival, now);
        let flow = self.flow_kept(common, idx, (lane, level), &ticket.tenant);
        let old_level = common.waiters.meta(idx).level;
        let old_tenant = self.leave_to_move(common, idx, old_level);
        self.unlink_otherwise(common, idx, old_level);
        common.write_ticket(idx, ticket, limits, now);
        self.link(common, idx, lane, flow, now);
        if let Some(tenant) = old_tenant {
            self.settle_tenant(common, &tenant, None);
        }
    }

    /// Returns the state of a waiter's flow, if the waiter stays in it with this lane, level and tenant.
    fn flow_kept<T>(
        &self,
        common: &Common<T>,
        idx: u32,
        place: (u32, u8),
        tenant: &Tenant,
    ) -> Option<FlowState> {
        let meta = common.waiters.meta(idx);
        // A parked waiter is outside of all flows.
        if meta.is_parked || (meta.lane, meta.level) != place {
            return None;
        }
        let takes_turns = self.lanes.discipline(meta.lane) == Discipline::Fair;
        if takes_turns && meta.tenant() != tenant {
            return None;
        }
        self.lanes.flow_state(&common.waiters, idx)
    }

    /// Takes a waiter out of the count of its tenant.
    fn unlink_tenant(&mut self, tenant: &Tenant) {
        if let Some(waiting) = self.tenants.get_mut(tenant) {
            *waiting -= 1;
            if *waiting == 0 {
                // A tenant is dropped with its last waiter.
                self.tenants.remove(tenant);
            }
        }
    }
}
