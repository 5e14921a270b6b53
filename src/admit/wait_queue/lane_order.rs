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
use super::tenant_slots::TenantSlots;
use crate::admit::nanos::Nanos;
use crate::admit::ordered_queue::List;
use crate::admit::room_base::RoomBase;
use crate::admit::tenant_counts::TenantCounts;
use crate::admit::waiters::{WaitLimits, Waiters};
use crate::admit::{Discipline, Partition, Priority, Tenant, Ticket};

/// The lanes of a queue, with the other indices of its waiters.
pub(super) struct LaneOrder<L> {
    pub(super) lanes: Lanes<L>,
    /// The waiters that will be promoted, by the time of their next promotion.
    pub(super) promotions: BTreeSet<Promotion>,
    /// The partitions with a bound of their own in which requests wait, by id.
    pub(super) partitions: HashMap<u32, BoundedPartition>,
    /// The order in which waiters lose their places, if flows share these. `None` if the order of the levels is enough.
    pub(super) eviction: Option<Box<EvictionOrder>>,
    /// The number of waiters of each tenant if that is bounded, and otherwise empty.
    pub(super) tenants: TenantCounts,
    /// The waiters of tenants by their slots, or `None` if the slots of a tenant are unlimited.
    pub(super) tenant_slots: Option<TenantSlots>,
}

/// The waiters of a partition that has a bound of its own. Without it, the requests for one popular model could take
/// every place.
pub(super) struct BoundedPartition {
    max_size: usize,
    pub(super) waiters: EvictionOrder,
}

impl BoundedPartition {
    /// Returns `true` if more requests wait than the bound allows.
    pub(super) fn is_overfull(&self) -> bool {
        self.excess() > 0
    }

    /// Returns the number of waiters above the bound.
    pub(super) fn excess(&self) -> usize {
        self.waiters.len().saturating_sub(self.max_size)
    }
}

impl<L: Clone + Eq + Hash> LaneOrder<L> {
    /// Creates an empty order, in which the clocks of flows continue from those of the `old` lanes.
    pub(super) fn new(base: &RoomBase, old: Option<&Lanes<L>>, hasher: &RandomState) -> Self {
        let config = &base.config;
        // The limits only apply to a queue with slots.
        let has_limits = base.has_slots && base.limits_slots;
        let lanes = match old {
            Some(old) => old.renewed(base),
            None => Lanes::new(base, hasher.clone()),
        };
        Self {
            lanes,
            promotions: BTreeSet::new(),
            partitions: HashMap::new(),
            eviction: config.has_flows().then(|| {
                let order = EvictionOrder::new(List::Room, config.discipline, base);
                Box::new(order)
            }),
            tenants: TenantCounts::default(),
            tenant_slots: has_limits.then(TenantSlots::default),
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
        self.link_at(common, idx, (lane, level), flow);
    }

    /// Links a waiter like [`link`](Self::link), at this level of its lane.
    pub(super) fn link_at<T>(
        &mut self,
        common: &mut Common<T>,
        idx: u32,
        (lane, level): (u32, u8),
        flow: Option<FlowState>,
    ) {
        let meta = common.waiters.meta_mut(idx);
        (meta.level, meta.lane, meta.is_parked) = (level, lane, false);
        let is_patient = meta.is_patient;
        self.enter(common, idx, flow);
        if common.base.config.bounds_tenants() && !is_patient {
            self.tenants.add(common.waiters.meta(idx).tenant());
        }
        common.link(idx);
        if self.has_rare_links(&common.base) {
            self.link_rare(common, idx);
        }
    }

    /// Returns `true` if waiters may be linked in a partition, in an order of eviction or in the promotions.
    #[inline]
    fn has_rare_links(&self, base: &RoomBase) -> bool {
        self.lanes.has_bounds || self.eviction.is_some() || base.config.promote_after.is_some()
    }

    fn link_rare<T>(&mut self, common: &mut Common<T>, idx: u32) {
        // A patient waiter takes up no place, so it cannot lose one.
        if !common.waiters.meta(idx).is_patient {
            self.link_place(common, idx);
        }
        let promotion = next_promotion(&common.waiters, &common.base.config, idx);
        self.promotions.extend(promotion);
    }

    fn link_place<T>(&mut self, Common { base, waiters, .. }: &mut Common<T>, idx: u32) {
        let partition = self.lanes.lane(waiters.meta(idx).lane).partition;
        if let Some(max_size) = partition.max_size {
            let of = self.partitions.entry(partition.id).or_insert_with(|| {
                let discipline = partition.discipline.unwrap_or(base.config.discipline);
                let waiters = EvictionOrder::new(List::Partition, discipline, base);
                BoundedPartition { max_size, waiters }
            });
            // The capacity may have changed the bound since the first waiter.
            of.max_size = max_size;
            of.waiters.push(waiters, idx);
        }
        if let Some(order) = &mut self.eviction {
            order.push(waiters, idx);
        }
    }

    fn unlink_rare<T>(&mut self, common: &mut Common<T>, idx: u32) {
        if !common.waiters.meta(idx).is_patient {
            self.unlink_place(&mut common.waiters, idx);
        }
        if let Some(promotion) = next_promotion(&common.waiters, &common.base.config, idx) {
            self.promotions.remove(&promotion);
        }
    }

    fn unlink_place<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let Partition { id, max_size, .. } = self.lanes.lane(waiters.meta(idx).lane).partition;
        if max_size.is_some()
            && let Some(of) = self.partitions.get_mut(&id)
        {
            of.waiters.remove(waiters, idx);
            // Demands may name any number of partitions, so the empty ones are dropped.
            if of.waiters.len() == 0 {
                self.partitions.remove(&id);
            }
        }
        if let Some(order) = &mut self.eviction {
            order.remove(waiters, idx);
        }
    }

    /// Undoes [`link`](Self::link). If the waiter `is_served`, it leaves with a slot.
    pub(super) fn unlink<T>(&mut self, common: &mut Common<T>, idx: u32, is_served: bool) {
        let tenant = self.leave(common, idx, is_served);
        self.unlink_otherwise(common, idx);
        match tenant {
            Some(tenant) if is_served => self.on_leased(common, &tenant),
            Some(tenant) => _ = self.settle_tenant(common, &tenant, None),
            None => {}
        }
    }

    /// Undoes [`link`](Self::link), except for the lane.
    fn unlink_otherwise<T>(&mut self, common: &mut Common<T>, idx: u32) {
        let meta = common.waiters.meta(idx);
        if common.base.config.bounds_tenants() && !meta.is_patient {
            self.tenants.remove(meta.tenant());
        }
        common.unlink(idx);
        if self.has_rare_links(&common.base) {
            self.unlink_rare(common, idx);
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
        // Until the old tenant is settled, no other waiter takes over the flow of the one that moves.
        let old_tenant = self.leave(common, idx, false);
        self.unlink_otherwise(common, idx);
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
        let takes_turns = self.lanes.group_of(meta.lane).discipline == Discipline::Fair;
        if takes_turns && meta.tenant() != tenant {
            return None;
        }
        self.lanes.flow_state(&common.waiters, idx)
    }
}
