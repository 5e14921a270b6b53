//! Reconfiguration: all waiters are linked anew, in the order of arrival.
//!
//! A change of the configuration, or of the capacity's lanes, may change every index. Entries stay where they are, so that
//! ids stay valid; everything that refers to them is built again, which is O(n log n).

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Instant;

use super::WaitQueue;
use super::eviction::EvictionOrder;
use super::lanes::Lanes;
use super::partitions::Partitions;
use crate::admit::by_level::ByLevel;
use crate::admit::capacity::{Partition, PoolSet};
use crate::admit::nanos::Nanos;
use crate::admit::ordered_queue::List;
use crate::admit::room_base::RoomBase;
use crate::admit::timeouts::Timeouts;
use crate::admit::waiters::{WaiterId, Waiters};
use crate::admit::{Priority, PriorityLevels, RejectReason, WaitingRoomConfig};

/// A waiter, and the lane in which it is to be linked.
pub(crate) struct Relink<L> {
    pub(crate) idx: u32,
    pub(crate) key: L,
    pub(crate) pools: PoolSet,
    pub(crate) partition: Partition,
}

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Changes the configuration. Every item keeps its place in the order, and a level keeps its items by name; items of a
    /// name that is gone get the default level. Items that have no place any more are unlinked and returned, with the
    /// reason, in the order in which a full room evicts: see [`displace`](WaitingRoomConfig::displace).
    pub fn reconfigure(
        &mut self,
        config: WaitingRoomConfig,
        now: Instant,
    ) -> Vec<(WaiterId, RejectReason)> {
        let now = self.base.epoch.nanos(now);
        // The lanes stay what they are.
        let lanes = self.waiters.oldest_first().into_iter();
        let lanes = lanes
            .map(|idx| {
                let (key, pools, partition) = self.lanes.describe(self.waiters.meta(idx).lane);
                Relink {
                    idx,
                    key,
                    pools,
                    partition,
                }
            })
            .collect();
        // While the old names are known.
        rename_levels(&mut self.waiters, &self.base.config.levels, &config.levels);
        self.base.set_config(config);
        self.is_plain = self.needs_no_lane();
        self.rebuild(lanes, now);
        let mut ended = Vec::new();
        // First: no waiter is evicted in place of an expired one.
        while let Some(expired) = self.expire_next(now) {
            ended.push(expired);
        }
        self.evict_excess(|id, why| ended.push((id, why)));
        for (_, why) in &ended {
            self.base.stats.reject(why);
        }
        ended
    }

    /// A queue with these waiters, which were in another room before. The flows of tenants keep their state from the old
    /// lanes, if there are any.
    pub(crate) fn from_parts(
        base: RoomBase,
        waiters: Waiters<T>,
        relinks: Vec<Relink<L>>,
        lanes: Option<Lanes<L>>,
        now: Nanos,
    ) -> Self {
        let lanes = lanes.unwrap_or_else(|| Lanes::new(&base.config));
        let mut queue = Self::empty(base, lanes);
        queue.waiters = waiters;
        // Before the waiters are linked: it decides which of them are parked.
        queue.limit_tenants();
        queue.rebuild(relinks, now);
        queue
    }

    /// Takes the queue apart, to build another of its waiters.
    pub(crate) fn into_parts(self) -> (RoomBase, Waiters<T>, Lanes<L>) {
        (self.base, self.waiters, self.lanes)
    }

    /// Links all waiters anew, in the order given, which is that of arrival: most are pushed at the end of a queue then.
    pub(crate) fn rebuild(&mut self, relinks: Vec<Relink<L>>, now: Nanos) {
        let old = self.clear_links();
        // Where levels have weights or had, a flow may be split into several of one queue. Then one part keeps the rank
        // among equals.
        let may_split = old.is_weighted() || self.lanes.is_weighted();
        let mut ranks = HashSet::new();
        for Relink {
            idx,
            key,
            pools,
            partition,
        } in relinks
        {
            // Before `link` changes its lane and level: they lead to the flow's old state.
            let mut flow = self.lanes.flow_state_from(&old, &self.waiters, idx);
            if let Some(flow) = &mut flow
                && may_split
                && !ranks.insert(flow.since)
            {
                // Ignored for a flow that is open already.
                flow.since = self.lanes.next_dispatch();
            }
            let lane = self.lane(key, |_| (pools, partition));
            self.link(idx, lane, flow, now);
        }
        self.lanes.inherit_debts(&old);
    }

    /// Unlinks all waiters at once, and returns the old lanes.
    pub(super) fn clear_links(&mut self) -> Lanes<L> {
        let levels = self.base.config.levels.count();
        self.waiters.bounds = self.base.bounds();
        self.by_level = ByLevel::new(List::Level, levels);
        self.timeouts = Timeouts::new();
        self.promotions.clear();
        self.partitions = Partitions::default();
        self.eviction = EvictionOrder::of_room(&self.base.config);
        self.tenants = HashMap::new();
        if let Some(slots) = &mut self.tenant_slots {
            slots.clear();
        }
        // `link` counts them again.
        self.base.on_all_unlinked();
        let new = self.lanes.renewed(&self.base.config);
        std::mem::replace(&mut self.lanes, new)
    }

    /// Unlinks the waiters that have no place any more.
    pub(crate) fn evict_excess<N>(&mut self, mut evicted: impl FnMut(WaiterId, RejectReason<N>)) {
        if let Some(max) = self.base.config.max_size_per_tenant {
            // O(n log n), and only after a reconfiguration.
            for idx in self.waiters.latest_first() {
                let meta = self.waiters.meta(idx);
                let waiting = self.tenants.get(meta.tenant());
                if waiting.is_some_and(|&waiting| waiting > max) && !meta.is_patient {
                    self.unlink(idx, false);
                    evicted(self.waiters.id(idx), RejectReason::TenantFull);
                }
            }
        }
        self.evict_from_partitions(&mut evicted);
        // Only now: the evictions above have made room.
        while self.base.placed() > self.base.config.max_size
            && let Some(idx) = self.lowest()
        {
            self.unlink(idx, false);
            evicted(self.waiters.id(idx), self.base.why_evicted());
        }
    }

    /// Unlinks the waiters that have no place any more in their partition.
    pub(crate) fn evict_from_partitions<N>(
        &mut self,
        mut evicted: impl FnMut(WaiterId, RejectReason<N>),
    ) {
        for partition in self.partitions.overfull() {
            while let Some(idx) = self.partitions.excess(partition) {
                self.unlink(idx, false);
                evicted(self.waiters.id(idx), RejectReason::Full);
            }
        }
    }
}

/// Gives each waiter the level that has its old level's name, or the default level if there is none.
pub(crate) fn rename_levels<T>(
    waiters: &mut Waiters<T>,
    old: &PriorityLevels,
    new: &PriorityLevels,
) {
    for idx in waiters.oldest_first() {
        let meta = waiters.meta_mut(idx);
        // Its `level`, promotions included, follows when it is linked.
        meta.priority = new.parse(old.name(Priority(meta.priority)).as_bytes()).0;
    }
}
