//! The limits on tenants' slots, which decides the waiters that stand in their lanes and those that are parked.
//!
//! In each lane only as many of a tenant's waiters stand as the tenant may still have slots, and these are its most
//! urgent ones. The others are parked, so no release has to look past them. A change costs O(log n) for each lane in
//! which the tenant waits.
//!
//! Every slot is still used, because a waiter is parked in only two cases. Either others of its tenant that want the
//! same slots stand before it, or its tenant is at its limit and one of its slots has yet to come back.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use super::Common;
use super::discipline::FlowState;
use super::lane_order::LaneOrder;
use crate::admit::nanos::Nanos;
use crate::admit::ordered_queue::ArrivalKey;
use crate::admit::room_base::RoomBase;
use crate::admit::waiters::Waiters;
use crate::admit::{Discipline, Tenant};

/// The rank of a tenant's waiter in one lane, with its index. Waiters rank by level, then by the end of the wait if
/// that is the lane's discipline, then by arrival.
type Place = (u8, (Nanos, ArrivalKey), u32);

/// The waiters of all tenants, by tenant and lane, in a room that limits a tenant's slots.
#[derive(Debug, Default)]
pub(super) struct TenantSlots {
    /// The waiters by tenant and lane. A tenant is dropped with its last waiter.
    tenants: HashMap<Tenant, BTreeMap<u32, InLane>>,
}

/// A tenant's waiters in one lane. Every standing waiter goes before every parked one.
#[derive(Debug, Default)]
struct InLane {
    standing: BTreeSet<Place>,
    parked: BTreeSet<Place>,
}

/// The waiters that a change parks or unparks, by index.
#[derive(Debug, Default)]
struct Moves {
    park: Vec<u32>,
    unpark: Vec<u32>,
}

impl InLane {
    /// Lets the first `free` waiters stand, which is the number of slots that the tenant may still have, and parks the
    /// others.
    fn settle(&mut self, free: usize, moves: &mut Moves) {
        // The loop ends because each round takes a parked waiter.
        while let Some(first) = self.parked.first()
            && (self.standing.len() < free || self.standing.last().is_some_and(|last| first < last))
            && let Some(first) = self.parked.pop_first()
        {
            self.standing.insert(first);
            moves.unpark.push(first.2);
        }
        // One waiter too many stands after a newcomer went before the last that stands, or after a slot was granted.
        while self.standing.len() > free
            && let Some(last) = self.standing.pop_last()
        {
            self.parked.insert(last);
            moves.park.push(last.2);
        }
    }
}

impl TenantSlots {
    pub(super) fn trim(&mut self) {
        self.tenants.shrink_to_fit();
    }
}

impl<L: Clone + Eq + Hash> LaneOrder<L> {
    /// Returns `true` if the tenant may have one more slot.
    #[inline]
    pub(super) fn may_lease(&self, base: &RoomBase, tenant: &Tenant) -> bool {
        self.tenant_slots.is_none()
            || base.leases.of(tenant) < base.config.max_concurrent_of(tenant)
    }

    /// Returns `true` if a newcomer to the lane would have to wait for others of its tenant.
    pub(super) fn waits_for_its_tenant(&self, base: &RoomBase, tenant: &Tenant, lane: u32) -> bool {
        if self.tenant_slots.is_none() {
            return false;
        }
        let in_lane = self.in_lane(tenant, lane);
        let standing = in_lane.map_or(0, |own| own.standing.len());
        // This counts all waiters that stand in the lane as if each got a slot of the tenant before the newcomer.
        base.leases.of(tenant) + standing >= base.config.max_concurrent_of(tenant)
    }

    /// Records that a request of this tenant has a slot from now on, and parks a waiter for it if necessary.
    pub(super) fn on_leased<T>(&mut self, common: &mut Common<T>, tenant: &Tenant) {
        if self.tenant_slots.is_some() {
            common.base.leases.add(tenant);
            self.settle_tenant(common, tenant, None);
        }
    }

    /// Adds a waiter to its lane, or parks it. `flow` is the state of its flow, as for
    /// [`Lanes::push`](super::lanes::Lanes::push).
    pub(super) fn enter<T>(&mut self, common: &mut Common<T>, idx: u32, flow: Option<FlowState>) {
        if self.tenant_slots.is_none() {
            return self.lanes.push(common, idx, flow);
        }
        self.enter_limited(common, idx, flow);
    }

    fn enter_limited<T>(&mut self, common: &mut Common<T>, idx: u32, flow: Option<FlowState>) {
        let place = self.place(&common.waiters, idx);
        let Some(slots) = &mut self.tenant_slots else {
            return;
        };
        let meta = common.waiters.meta_mut(idx);
        // The newcomer is parked first in any case, and `settle` then lets the best waiters of the tenant stand.
        meta.is_parked = true;
        let (lane, tenant) = (meta.lane, meta.tenant().clone());
        self.lanes.park(lane);
        let own = slots.tenants.entry(tenant.clone()).or_default();
        own.entry(lane).or_default().parked.insert(place);
        self.settle_tenant(common, &tenant, Some((idx, flow)));
    }

    /// Removes a waiter from its lane or from the parked ones. If it `is_served`, it leaves with a slot. With a limit
    /// on the slots of a tenant, returns its tenant, which has to be [settled](Self::settle_tenant) afterwards, because
    /// its other waiters may have to be parked or unparked.
    pub(super) fn leave<T>(
        &mut self,
        common: &mut Common<T>,
        idx: u32,
        is_served: bool,
    ) -> Option<Tenant> {
        let is_limited = self.tenant_slots.is_some();
        let place = is_limited.then(|| self.place(&common.waiters, idx));
        let meta = common.waiters.meta_mut(idx);
        let lane = meta.lane;
        meta.is_counted = is_served && is_limited;
        match (std::mem::take(&mut meta.is_parked), is_served) {
            (true, _) => self.lanes.unpark(lane),
            (false, true) => self.lanes.serve(common, idx),
            (false, false) => self.lanes.remove(common, idx),
        }
        let (slots, place) = self.tenant_slots.as_mut().zip(place)?;
        let tenant = common.waiters.meta(idx).tenant().clone();
        if let Some(own) = slots.tenants.get_mut(&tenant)
            && let Some(in_lane) = own.get_mut(&lane)
        {
            // A waiter is in exactly one of the two sets.
            if !in_lane.standing.remove(&place) {
                in_lane.parked.remove(&place);
            }
            if in_lane.standing.is_empty() && in_lane.parked.is_empty() {
                own.remove(&lane);
            }
            if own.is_empty() {
                slots.tenants.remove(&tenant);
            }
        }
        Some(tenant)
    }

    /// Parks and unparks waiters of a tenant after its slots or its waiters changed. Returns `true` if any waiter was
    /// unparked. `newcomer` is a waiter that has just arrived, with the state of its flow if it brought one.
    pub(super) fn settle_tenant<T>(
        &mut self,
        common: &mut Common<T>,
        tenant: &Tenant,
        newcomer: Option<(u32, Option<FlowState>)>,
    ) -> bool {
        let Some(slots) = &mut self.tenant_slots else {
            return false;
        };
        let Some(own) = slots.tenants.get_mut(tenant) else {
            return false;
        };
        // The difference saturates, because the limit may have been lowered below the slots that the tenant has.
        let max = common.base.config.max_concurrent_of(tenant);
        let free = max.saturating_sub(common.base.leases.of(tenant));
        let mut moves = Moves::default();
        own.values_mut()
            .for_each(|in_lane| in_lane.settle(free, &mut moves));
        let any = !moves.unpark.is_empty();
        for idx in moves.park {
            let meta = common.waiters.meta_mut(idx);
            meta.is_parked = true;
            let lane = meta.lane;
            self.lanes.remove(common, idx);
            self.lanes.park(lane);
        }
        for idx in moves.unpark {
            let meta = common.waiters.meta_mut(idx);
            meta.is_parked = false;
            let lane = meta.lane;
            self.lanes.unpark(lane);
            let own = newcomer.filter(|&(newcomer, _)| newcomer == idx);
            let flow = own.and_then(|(_, flow)| flow);
            // The waiter enters the lane at the position of its arrival.
            self.lanes.push(common, idx, flow);
        }
        any
    }

    /// Returns the waiters of a tenant in a lane.
    fn in_lane(&self, tenant: &Tenant, lane: u32) -> Option<&InLane> {
        self.tenant_slots.as_ref()?.tenants.get(tenant)?.get(&lane)
    }

    /// Returns `true` if a parked waiter goes before all others of its tenant and lane.
    pub(super) fn is_next_of_tenant<T>(&self, waiters: &Waiters<T>, idx: u32) -> bool {
        let meta = waiters.meta(idx);
        let own = self.in_lane(meta.tenant(), meta.lane);
        let is_next = |own: &InLane| {
            let place = self.place(waiters, idx);
            own.standing.is_empty() && own.parked.first() == Some(&place)
        };
        own.is_some_and(is_next)
    }

    /// Returns the number of parked waiters of the same tenant and lane that go before this parked one.
    pub(super) fn parked_before<T>(&self, waiters: &Waiters<T>, idx: u32) -> usize {
        let meta = waiters.meta(idx);
        let own = self.in_lane(meta.tenant(), meta.lane);
        own.map_or(0, |own| {
            own.parked.range(..self.place(waiters, idx)).count()
        })
    }

    fn place<T>(&self, waiters: &Waiters<T>, idx: u32) -> Place {
        let meta = waiters.meta(idx);
        let order = match self.lanes.group_of(meta.lane).discipline {
            Discipline::Deadline => super::discipline::deadline_key(waiters, idx),
            _ => (0, meta.key()),
        };
        (meta.level, order, idx)
    }
}
