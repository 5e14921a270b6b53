//! Reconfiguration, which links all waiters anew in the order of arrival.
//!
//! A change of the configuration, or of the capacity's lanes, may change every index. Entries stay at their index, so
//! that ids stay valid. Everything that refers to them is built again, which takes O(n log n).

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::hash::Hash;
use std::time::Instant;

use super::lane_order::LaneOrder;
use super::lanes::Lanes;
use super::order::Order;
use super::{Common, WaitQueue};
use crate::admit::capacity::{Partition, PoolSet};
use crate::admit::nanos::Nanos;
use crate::admit::waiters::{NONE, WaiterId, Waiters};
use crate::admit::{Priority, PriorityLevels, RejectReason, WaitingRoomConfig};

/// A waiter, with the lane in which it has to be linked.
pub(crate) struct Relink<L> {
    pub(crate) idx: u32,
    pub(crate) key: L,
    pub(crate) pools: PoolSet,
    pub(crate) partition: Partition,
}

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Changes the configuration. Every item keeps its position in the order, and a level keeps its items by name.
    /// Items of a name that is gone get the default level. Items that lose their place are unlinked and returned with
    /// the reason, in the order in which a full room evicts (see [`displace`](WaitingRoomConfig::displace)).
    pub fn reconfigure(
        &mut self,
        config: WaitingRoomConfig,
        now: Instant,
    ) -> Vec<(WaiterId, RejectReason)> {
        let now = self.common.base.clock.epoch.nanos(now);
        // A reconfiguration keeps every waiter in its lane.
        let relinks = self.relinks();
        self.set_config(config, relinks, now);
        let mut ended = Vec::new();
        // Expired waiters leave first, so that other waiters are not evicted in their stead.
        while let Some(expired) = self.expire_next(now) {
            ended.push(expired);
        }
        self.evict_excess(&mut ended);
        for (_, why) in &ended {
            self.count_rejected(why);
        }
        ended
    }

    /// Changes the configuration, and links all waiters anew in these lanes.
    pub(crate) fn set_config(
        &mut self,
        config: WaitingRoomConfig,
        relinks: Vec<Relink<L>>,
        now: Nanos,
    ) {
        let Common { base, waiters, .. } = &mut self.common;
        // This has to happen while the old names are still known.
        rename_levels(waiters, &base.config.levels, &config.levels);
        base.set_config(config);
        self.rebuild(relinks, now);
    }

    /// Returns all waiters in the order of arrival, each with its lane.
    pub(super) fn relinks(&self) -> Vec<Relink<L>> {
        let all = self.common.waiters.oldest_first().into_iter();
        all.filter_map(|idx| self.relink(idx)).collect()
    }

    pub(crate) fn relink(&self, idx: u32) -> Option<Relink<L>> {
        let (key, pools, partition) = match &self.order {
            Order::Levels(levels) => {
                // The only lane is known as soon as a request waits.
                let lane = levels.lane.as_ref()?;
                (lane.key.clone(), lane.pools.clone(), lane.partition)
            }
            Order::Lanes(order) => {
                let lane = order.lanes.lane(self.common.waiters.meta(idx).lane);
                let pools = order.lanes.groups[lane.group as usize].pools.clone();
                (lane.key.clone(), pools, lane.partition)
            }
        };
        Some(Relink {
            idx,
            key,
            pools,
            partition,
        })
    }

    /// Links all waiters anew, in the given order. That is the order of arrival, so most waiters are pushed at the end
    /// of a queue.
    pub(crate) fn rebuild(&mut self, relinks: Vec<Relink<L>>, now: Nanos) {
        let order = self.order_for(&relinks);
        self.rebuild_as(order, relinks, now);
    }

    /// Links all waiters anew in this order, which must be without waiters yet.
    pub(super) fn rebuild_as(&mut self, order: Order<L>, relinks: Vec<Relink<L>>, now: Nanos) {
        let old = std::mem::replace(&mut self.order, order);
        self.common.clear();
        match &mut self.order {
            Order::Levels(_) => {
                for Relink { idx, .. } in relinks {
                    self.common.enter_levels(idx);
                }
            }
            Order::Lanes(order) => {
                let old = match &old {
                    Order::Levels(_) => None,
                    Order::Lanes(old) => Some(&old.lanes),
                };
                order.link_all(&mut self.common, old, relinks, now);
            }
        }
    }

    /// Unlinks the waiters that exceed the bounds: first those of tenants, then those of partitions, then that of the
    /// room.
    pub(crate) fn evict_excess<N>(&mut self, evicted: &mut Vec<(WaiterId, RejectReason<N>)>) {
        if self.common.base.config.bounds_tenants() {
            // This takes O(n log n), but happens only after a reconfiguration.
            for idx in self.common.waiters.latest_first() {
                if self.is_beyond(idx) {
                    evicted.push((self.evict(idx), RejectReason::TenantFull));
                }
            }
        }
        self.evict_from_partitions(&HashMap::new(), evicted);
        // The room's own bound comes last, because the evictions above have made room.
        while self.common.base.counters.placed() > self.common.base.config.max_size
            && let Some(idx) = self.lowest()
        {
            evicted.push((self.evict(idx), self.common.base.why_evicted()));
        }
    }

    /// Returns the number of waiters by which each partition exceeds its bound. These came back, and entered above it.
    pub(crate) fn above_bounds(&self) -> HashMap<u32, usize> {
        let Order::Lanes(order) = &self.order else {
            return HashMap::new();
        };
        let overfull = order.partitions.iter().filter(|(_, of)| of.is_overfull());
        overfull.map(|(&id, of)| (id, of.excess())).collect()
    }

    /// Unlinks the waiters that exceed the bound of their partition by more than `above` says.
    pub(crate) fn evict_from_partitions<N>(
        &mut self,
        above: &HashMap<u32, usize>,
        evicted: &mut Vec<(WaiterId, RejectReason<N>)>,
    ) {
        let Order::Lanes(order) = &self.order else {
            return;
        };
        let overfull = order.partitions.iter().filter(|(_, of)| of.is_overfull());
        let mut overfull: Vec<u32> = overfull.map(|(&id, _)| id).collect();
        overfull.sort_unstable();
        for id in overfull {
            let above = above.get(&id).copied().unwrap_or(0);
            while let Some(idx) = self.last_above(id, above) {
                evicted.push((self.evict(idx), RejectReason::Full));
            }
        }
    }

    fn evict(&mut self, idx: u32) -> WaiterId {
        self.unlink(idx, false);
        self.common.waiters.id(idx)
    }

    fn last_above(&self, partition: u32, above: usize) -> Option<u32> {
        let Order::Lanes(order) = &self.order else {
            return None;
        };
        let of = order.partitions.get(&partition)?;
        of.waiters.last().filter(|_| of.excess() > above)
    }

    /// Returns `true` if a waiter takes a place, and its tenant takes more places than it may.
    fn is_beyond(&self, idx: u32) -> bool {
        let Order::Lanes(order) = &self.order else {
            return false;
        };
        let meta = self.common.waiters.meta(idx);
        let max = self.common.base.config.max_size_of(meta.tenant());
        order.tenants.of(meta.tenant()) > max && !meta.is_patient
    }
}

impl<T> Common<T> {
    /// Links a waiter that may have been in a lane before, at the level of its ticket.
    fn enter_levels(&mut self, idx: u32) {
        let meta = self.waiters.meta_mut(idx);
        (meta.level, meta.lane, meta.is_parked) = (meta.priority, NONE, false);
        self.link(idx);
    }
}

impl<L: Clone + Eq + Hash> LaneOrder<L> {
    /// Links all waiters in their lanes. The flows of tenants keep their state from the old lanes, if there are any.
    fn link_all<T>(
        &mut self,
        common: &mut Common<T>,
        old: Option<&Lanes<L>>,
        relinks: Vec<Relink<L>>,
        now: Nanos,
    ) {
        // If levels have weights now or had them before, one flow may be split into several of the same queue. Then
        // only the first part keeps the flow's rank among equals.
        let may_split =
            self.lanes.weights.have_levels() || old.is_some_and(|old| old.weights.have_levels());
        let mut ranks = HashSet::new();
        for Relink {
            idx,
            key,
            pools,
            partition,
        } in relinks
        {
            // The old state is read before `link` changes the waiter's lane and level, because these lead to it.
            let old_flow = |old| self.lanes.flow_state_from(old, &common.waiters, idx);
            let mut flow = old.and_then(old_flow);
            if let Some(flow) = &mut flow
                && may_split
                && !ranks.insert(flow.since)
            {
                // `push` ignores this state if the flow is already open.
                flow.since = self.lanes.next_dispatch();
            }
            let lane: Result<u32, Infallible> =
                self.lanes.find_or_open(key, |_| Ok((pools, partition)));
            let Ok(lane) = lane;
            self.link(common, idx, lane, flow, now);
        }
        if let Some(old) = old {
            self.lanes.inherit_debts(old);
        }
    }
}

/// Gives each waiter the level that has its old level's name, or the default level if that name is gone.
pub(crate) fn rename_levels<T>(
    waiters: &mut Waiters<T>,
    old: &PriorityLevels,
    new: &PriorityLevels,
) {
    for idx in waiters.oldest_first() {
        let meta = waiters.meta_mut(idx);
        // `link` sets the field `level` later, promotions included.
        meta.priority = new.parse(old.name(Priority(meta.priority)).as_bytes()).0;
    }
}
