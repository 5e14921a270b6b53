//! Lanes of waiters that need the same slots, and groups of lanes that the same pools can serve.
//!
//! If a release asked the capacity for each lane, its cost would grow with the number of lanes that have waiters, for
//! example one for each model. Lanes of one discipline that the same pools can serve are busy together, so they form a
//! group. A group knows the best head of its lanes, and a pool knows the groups that it can serve. So a release asks
//! for at most one waiter of each such group.
//!
//! With level weights, all levels of a lane share one queue; read "level" below as that queue.

mod backlog;
mod charge;
mod forecast;
mod lifecycle;
mod select;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use slab::Slab;

use super::Common;
use super::discipline::{DispatchKey, FlowState, LevelQueue};
use super::order::needs_lanes;
use crate::admit::Discipline;
use crate::admit::capacity::{Partition, PoolId, PoolSet};
use crate::admit::flow::FlowWeights;
use crate::admit::heap::Heap;
use crate::admit::room_base::RoomBase;
use crate::admit::waiters::Waiters;

pub(crate) use backlog::{Backlog, MAX_LOOKS};
pub(crate) use select::{Head, NO_PUMP, Scope};

/// The rank of a lane's head among lanes of one discipline: the level, then the discipline's key. The level is a whole
/// word, because a copy of one that was just written as a byte stalls the CPU's store forwarding.
pub(crate) type Rank = (u64, DispatchKey);

/// A lane, which has the waiters that need the same slots.
#[derive(Debug)]
pub(super) struct Lane<L> {
    pub(super) key: L,
    /// The hash of the lane's key, which identifies the lane in the service times.
    pub(super) hash: u32,
    pub(super) partition: Partition,
    pub(super) group: u32,
    /// The lane's number among the lanes of its group.
    member: u32,
    /// The queues by level, or one queue for all levels if these have weights.
    levels: Box<[LevelQueue]>,
    /// The first waiter of the highest level that has one.
    pub(super) head: Option<LaneHead>,
    /// The number of parked waiters that will enter the lane, which stays open for them.
    parked: usize,
}

impl<L> Lane<L> {
    /// Returns the index of a level's queue.
    #[inline]
    fn queue_of(&self, level: u8) -> usize {
        usize::from(level).min(self.levels.len() - 1)
    }
}

/// The waiter that goes next in a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct LaneHead {
    pub(super) idx: u32,
    /// The index of the waiter's queue.
    level: u8,
}

/// A group of lanes of one discipline that the same pools can serve.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) pools: PoolSet,
    pub(super) discipline: Discipline,
    /// The indices of the lanes, by member number.
    pub(super) lanes: Slab<u32>,
    /// The members with waiters, by the rank of their heads.
    pub(super) order: Heap<Rank>,
    /// The number of the pump that last found the group busy.
    blocked_in: u64,
    /// The number of the pump that last unblocked the group. It is cleared when one of the group's waiters is served.
    pub(super) looked_again_in: u64,
    /// The number of requests that wait in the group, by level.
    pub(super) waiting: Box<[usize]>,
    /// The number of waiting requests that are patient.
    patient: usize,
    /// The virtual time of each level if the waiters are in flows, and otherwise empty. Virtual time is the service
    /// that a flow of weight 1 has had if it waited all the time, in units of `cost × 2³² / weight`.
    ///
    /// Each group has its own clock. With one clock for all, a newcomer to a slow group would wait until its group had
    /// served as much as the fast groups have.
    clocks: Box<[u128]>,
}

impl Group {
    /// Returns `true` if tenants share the group's slots and no request waits for them, so that the next waiter starts
    /// the contended clocks of its pools, or the last one has just stopped them.
    #[inline]
    fn is_fair_and_empty(&self) -> bool {
        self.discipline == Discipline::Fair && self.waiting.iter().all(|&waiting| waiting == 0)
    }
}

/// The lanes of a queue, with the groups and pools that they belong to.
#[derive(Debug)]
pub(crate) struct Lanes<L> {
    pub(super) by_key: HashMap<L, u32>,
    /// The lanes by index. Empty lanes are kept for a while.
    pub(super) lanes: Slab<Lane<L>>,
    /// The lane of the latest arrival. It is often the lane of the next arrival too, which spares hashing the key.
    latest: u32,
    /// The number of lanes with a waiter, plus the number of lanes that are kept for parked ones. A lane may count
    /// twice.
    occupied: usize,
    /// The groups of lanes that exactly these pools can serve, one for each discipline.
    by_pools: HashMap<PoolSet, Vec<u32>>,
    pub(super) groups: Slab<Group>,
    /// The groups that each pool can serve, by pool.
    by_pool: Vec<Vec<u32>>,
    /// The number of the pump that last found any group busy.
    blocked_in: u64,
    /// The virtual time at which the clocks of a new group begin.
    base: u128,
    /// The number of waiters that were queued or served so far.
    dispatches: u64,
    levels: usize,
    pub(super) weights: Arc<FlowWeights>,
    pub(super) discipline: Discipline,
    /// `true` if the order `Levels` does not suffice, by the configuration or because of a lane that was opened.
    pub(super) are_needed: bool,
    /// `true` once a lane was opened in a partition that has a bound of its own.
    pub(super) has_bounds: bool,
    /// `true` if tenants have shares in the room's discipline, or once a lane was opened in which they have.
    pub(super) has_fair: bool,
    /// `true` if the head of any lane may have changed since this was last taken.
    pub(super) heads_changed: bool,
}

/// The pump number of a group that was never found busy. Pumps are numbered from 1.
pub(super) const NOT_BLOCKED: u64 = 0;

/// Returns the hash that identifies a lane in the service times.
pub(super) fn hash_of<L: Hash>(hasher: &RandomState, key: &L) -> u32 {
    match size_of::<L>() {
        // A type of size 0 has only one value, so all keys are equal.
        0 => 0,
        // The upper half is enough, because lanes of equal hashes only share their service times.
        _ => (hasher.hash_one(key) >> 32) as u32,
    }
}

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// Creates an empty set of lanes. `hasher` hashes their keys.
    pub(crate) fn new(base: &RoomBase, hasher: RandomState) -> Self {
        let config = &base.config;
        Self {
            by_key: HashMap::with_hasher(hasher),
            lanes: Slab::new(),
            latest: 0,
            occupied: 0,
            by_pools: HashMap::new(),
            groups: Slab::new(),
            by_pool: Vec::new(),
            blocked_in: NOT_BLOCKED,
            base: 0,
            dispatches: 0,
            levels: config.levels.count(),
            weights: Arc::clone(&base.weights),
            discipline: config.discipline,
            are_needed: needs_lanes(config, base.has_slots),
            has_bounds: false,
            has_fair: config.discipline == Discipline::Fair,
            heads_changed: true,
        }
    }

    /// Creates an empty set of lanes. Their clocks begin at the latest virtual time of the present ones.
    pub(crate) fn renewed(&self, base: &RoomBase) -> Self {
        let clocks = self.groups.iter().flat_map(|(_, group)| &group.clocks);
        Self {
            base: clocks.copied().max().unwrap_or(self.base),
            dispatches: self.dispatches,
            // The hasher is kept, so that a key has the same hash as before.
            ..Self::new(base, self.by_key.hasher().clone())
        }
    }

    /// Returns the state of the waiter's flow, as far behind the others or ahead of them as it was in the `old` lanes.
    /// Returns `None` if the waiter was outside of all flows.
    pub(crate) fn flow_state_from<T>(
        &self,
        old: &Self,
        waiters: &Waiters<T>,
        idx: u32,
    ) -> Option<FlowState> {
        let meta = waiters.meta(idx);
        // A parked waiter is outside of all flows.
        if meta.is_parked {
            return None;
        }
        // A waiter that was ordered by its level alone is without a lane. Its index `NONE` is out of range here.
        let lane = old.lanes.get(meta.lane as usize)?;
        let level = lane.queue_of(meta.level);
        let FlowState { start, since } = lane.levels[level].flow_state(waiters, idx)?;
        // The subtraction cannot underflow, because `base` is the latest clock.
        let start = self.base + start - old.groups[lane.group as usize].clocks[level];
        Some(FlowState { start, since })
    }

    /// Returns the state of the flow of a waiter that is in its lane, if there are flows.
    pub(crate) fn flow_state<T>(&self, waiters: &Waiters<T>, idx: u32) -> Option<FlowState> {
        let meta = waiters.meta(idx);
        let lane = &self.lanes[meta.lane as usize];
        lane.levels[lane.queue_of(meta.level)].flow_state(waiters, idx)
    }

    /// Returns the lane with this key. Calls `ask` for its pools and its partition if the lane has to be opened.
    #[inline]
    pub(crate) fn find_or_open<E>(
        &mut self,
        key: L,
        ask: impl FnOnce(&L) -> Result<(PoolSet, Partition), E>,
    ) -> Result<u32, E> {
        let lane = match self.lanes.get(self.latest as usize) {
            Some(lane) if lane.key == key => self.latest,
            _ => match self.by_key.get(&key) {
                Some(&lane) => lane,
                None => {
                    let (pools, partition) = ask(&key)?;
                    self.open(key, pools, partition)
                }
            },
        };
        self.latest = lane;
        Ok(lane)
    }

    /// Adds a waiter to its lane. `flow` is the state of its flow, or `None` if the flow begins now.
    #[inline]
    pub(crate) fn push<T>(&mut self, common: &mut Common<T>, idx: u32, flow: Option<FlowState>) {
        let meta = common.waiters.meta(idx);
        let (lane, level) = (meta.lane, self.queue_of(meta.lane, meta.level));
        let is_patient = meta.is_patient;
        let group = self.lanes[lane as usize].group;
        if self.groups[group as usize].is_fair_and_empty() {
            let pools = &self.groups[group as usize].pools;
            common.contention.begin(pools, common.base.clock.now);
        }
        let start = self.join_clock(group, level);
        self.groups[group as usize].patient += usize::from(is_patient);
        self.dispatches += 1;
        let since = self.dispatches;
        let flow = flow.unwrap_or(FlowState { start, since });
        let queue = &mut self.lanes[lane as usize].levels[level];
        if queue.push(&mut common.waiters, idx, flow) {
            self.refresh(&common.waiters, lane, level);
        }
    }

    /// Counts one more waiter of a group, and returns the virtual time at which a new flow begins. If the waiter is the
    /// first of the group, the group's clock is set to that of its competitors.
    #[inline]
    fn join_clock(&mut self, group: u32, level: usize) -> u128 {
        let clock = self.clock_of_newcomer(group, level);
        let group = &mut self.groups[group as usize];
        group.waiting[level] += 1;
        // Only groups with flows have clocks.
        if let Some(own) = group.clocks.get_mut(level) {
            *own = clock;
        }
        clock
    }

    /// Returns the virtual time at which a newcomer's flow begins.
    fn clock_of_newcomer(&self, group: u32, level: usize) -> u128 {
        let groups = &self.groups;
        let Some(&clock) = groups[group as usize].clocks.get(level) else {
            return 0;
        };
        // The clock of a group with waiters runs, so it is up to date.
        if groups[group as usize].waiting[level] > 0 {
            return clock;
        }
        // The clock stood still while other groups on the same pools were served. Their tenants are not behind the
        // newcomer.
        let group = &groups[group as usize];
        let competitors = group
            .pools
            .iter()
            .flat_map(|&pool| self.served_by(pool))
            // A group of another discipline is skipped, because it counts service in another way.
            .filter(|other| other.discipline == group.discipline && other.waiting[level] > 0)
            .filter_map(|other| other.clocks.get(level));
        competitors.fold(clock, |latest, &other| latest.max(other))
    }

    /// Removes a waiter that got a slot.
    #[inline]
    pub(crate) fn serve<T>(&mut self, common: &mut Common<T>, idx: u32) {
        let waiters = &mut common.waiters;
        let meta = waiters.meta(idx);
        let (lane, level) = (meta.lane, self.queue_of(meta.lane, meta.level));
        self.dispatches += 1;
        let ends = self.lanes[lane as usize].levels[level].serve(waiters, idx, self.dispatches);
        let group = self.lane(lane).group;
        let group = &mut self.groups[group as usize];
        group.waiting[level] -= 1;
        group.patient -= usize::from(waiters.meta(idx).is_patient);
        if let Some(clock) = group.clocks.get_mut(level) {
            // The clock only moves forward, although a flow that lost a costly head may be due before the waiter that
            // was served last.
            *clock = (*clock).max(ends);
        }
        if group.is_fair_and_empty() {
            common.contention.end(&group.pools, common.base.clock.now);
        }
        self.refresh(&common.waiters, lane, level);
    }

    /// Removes a waiter that leaves without a slot.
    #[inline]
    pub(crate) fn remove<T>(&mut self, common: &mut Common<T>, idx: u32) {
        let waiters = &mut common.waiters;
        let meta = waiters.meta(idx);
        let (lane, level) = (meta.lane, self.queue_of(meta.lane, meta.level));
        let head_may_change = self.lanes[lane as usize].levels[level].remove(waiters, idx);
        let group = self.lane(lane).group;
        let group = &mut self.groups[group as usize];
        group.waiting[level] -= 1;
        group.patient -= usize::from(waiters.meta(idx).is_patient);
        if group.is_fair_and_empty() {
            common.contention.end(&group.pools, common.base.clock.now);
        }
        // The head stays if a waiter leaves from the middle.
        if head_may_change {
            self.refresh(&common.waiters, lane, level);
        }
    }

    /// Removes a waiter that will be restored.
    pub(crate) fn skip<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let meta = waiters.meta(idx);
        let (lane, level) = (meta.lane, self.queue_of(meta.lane, meta.level));
        if self.lanes[lane as usize].levels[level].skip(waiters, idx) {
            self.refresh(waiters, lane, level);
        }
    }

    /// Adds a waiter that was skipped.
    pub(crate) fn restore<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let meta = waiters.meta(idx);
        let (lane, level) = (meta.lane, self.queue_of(meta.lane, meta.level));
        if self.lanes[lane as usize].levels[level].restore(waiters, idx) {
            self.refresh(waiters, lane, level);
        }
    }

    /// Gives back the memory that the present waiters can do without. Their order stays.
    pub(crate) fn trim<T>(&mut self, waiters: &mut Waiters<T>) {
        for (_, lane) in &mut self.lanes {
            lane.levels.iter_mut().for_each(|queue| queue.trim(waiters));
        }
    }

    /// Returns the number of the next dispatch.
    pub(crate) fn next_dispatch(&self) -> u64 {
        self.dispatches + 1
    }

    #[inline]
    pub(super) fn lane(&self, lane: u32) -> &Lane<L> {
        &self.lanes[lane as usize]
    }

    /// Returns the group that a lane belongs to.
    #[inline]
    pub(super) fn group_of(&self, lane: u32) -> &Group {
        &self.groups[self.lane(lane).group as usize]
    }

    /// Keeps the lane open for a parked waiter.
    pub(crate) fn park(&mut self, lane: u32) {
        let parked = &mut self.lanes[lane as usize].parked;
        *parked += 1;
        // A lane that has a waiter is counted a second time here.
        self.occupied += usize::from(*parked == 1);
    }

    /// Records that a parked waiter enters the lane or leaves.
    pub(crate) fn unpark(&mut self, lane: u32) {
        let parked = &mut self.lanes[lane as usize].parked;
        *parked -= 1;
        self.occupied -= usize::from(*parked == 0);
    }

    /// Returns the index of a level's queue in a lane.
    #[inline]
    fn queue_of(&self, lane: u32, level: u8) -> usize {
        self.lanes[lane as usize].queue_of(level)
    }

    /// Returns the indices of the groups that a pool can serve.
    #[inline]
    fn groups_on(&self, pool: PoolId) -> &[u32] {
        self.by_pool.get(pool.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// Returns the groups that a pool can serve.
    #[inline]
    pub(super) fn served_by(&self, pool: PoolId) -> impl Iterator<Item = &Group> {
        let groups = self.groups_on(pool).iter();
        groups.map(|&group| &self.groups[group as usize])
    }

    /// Brings the lane's head, and its rank in its group, up to date after a change in the level `changed`.
    #[inline]
    fn refresh<T>(&mut self, waiters: &Waiters<T>, index: u32, changed: usize) {
        let lane = &mut self.lanes[index as usize];
        let is_above = |head: LaneHead| usize::from(head.level) < changed;
        // A change below the head's level leaves the head as it is, so the group need not learn of it.
        if lane.head.is_some_and(is_above) {
            return;
        }
        self.heads_changed = true;
        let order = &mut self.groups[lane.group as usize].order;
        let was_occupied = lane.head.is_some();
        // The head was at this level or below, so all levels above are empty.
        for (level, queue) in (changed..).zip(&lane.levels[changed..]) {
            if let Some(idx) = queue.head() {
                // The rank is set even if the head is the same, because its key may have changed.
                order.set(lane.member, (level as u64, queue.head_key(waiters, idx)));
                let level = level as u8;
                lane.head = Some(LaneHead { idx, level });
                self.occupied += usize::from(!was_occupied);
                return;
            }
        }
        // Here all levels are empty, so the lane leaves its group's order.
        order.remove(lane.member);
        lane.head = None;
        self.occupied -= usize::from(was_occupied);
    }
}
