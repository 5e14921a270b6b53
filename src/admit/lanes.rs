//! Lanes, and which of them a freed slot can serve.
//!
//! Asking every lane after every release would make one release as slow as there are models waiting. Lanes
//! that the same pools can serve form a group. A group knows the best head of its lanes, a pool knows its
//! groups, and when one lane of a group finds every slot busy, so would the others.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

use slab::Slab;

use super::capacity::{Pool, Pools};
use super::chairs::Chairs;
use super::discipline::{Queue, Turn, VirtualTime};
use super::heap::Heap;
use super::{Discipline, RoomConfig};

/// The order over lanes: level first, then the discipline's turn.
pub(crate) type Rank = (u8, Turn);

#[derive(Debug)]
struct Lane<L> {
    key: L,
    group: u32,
    /// Its number among the lanes of its group.
    member: u32,
    levels: Box<[Queue]>,
    head: Option<u32>,
}

#[derive(Debug)]
struct Group {
    pools: Pools,
    lanes: Slab<u32>,
    order: Heap<Rank>,
    /// The pump that last found it busy.
    blocked_in: u64,
}

/// The groups that a pump looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope<'a> {
    Pool(Pool),
    Pools(&'a Pools),
    All,
}

/// The best waiter that a pump has not yet found blocked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Best {
    pub(crate) at: u32,
    pub(crate) group: u32,
    pub(crate) rank: Rank,
}

/// All lanes.
#[derive(Debug)]
pub(crate) struct Lanes<L> {
    by_key: HashMap<L, u32>,
    lanes: Slab<Lane<L>>,
    occupied: usize,
    by_pools: HashMap<Pools, u32>,
    groups: Slab<Group>,
    /// The groups that each pool can serve.
    by_pool: Vec<Vec<u32>>,
    time: Box<[VirtualTime]>,
    discipline: Discipline,
    epoch: Instant,
}

/// The number of no pump, to which no group is blocked.
pub(crate) const NO_PUMP: u64 = u64::MAX;
const NOT_BLOCKED: u64 = 0;

/// Empty lanes are kept for their next waiter, up to as many as are occupied and these.
const SPARE_LANES: usize = 64;

impl<L: Clone + Eq + Hash> Lanes<L> {
    pub(crate) fn new(config: &RoomConfig, epoch: Instant) -> Self {
        Self {
            by_key: HashMap::new(),
            lanes: Slab::new(),
            occupied: 0,
            by_pools: HashMap::new(),
            groups: Slab::new(),
            by_pool: Vec::new(),
            time: vec![VirtualTime::default(); config.levels.count()].into(),
            discipline: config.discipline,
            epoch,
        }
    }

    /// Lines up the waiter on chair `at`, in a lane whose pools are asked for if it is new.
    pub(crate) fn push<T>(
        &mut self,
        chairs: &mut Chairs<T>,
        at: u32,
        key: L,
        pools: impl FnOnce(&L) -> Pools,
        config: &RoomConfig,
    ) {
        let lane = match self.by_key.get(&key) {
            Some(&lane) => lane,
            None => self.open(key, pools),
        };
        chairs.place_mut(at).lane = lane;
        self.push_again(chairs, at, config);
    }

    /// Lines up a waiter whose level changed in the lane that it was in.
    pub(crate) fn push_again<T>(&mut self, chairs: &mut Chairs<T>, at: u32, config: &RoomConfig) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        let queue = &mut self.lanes[lane as usize].levels[level];
        queue.push(chairs, at, &mut self.time[level], config);
        self.refresh(chairs, lane);
    }

    /// Takes out a waiter that got a slot.
    pub(crate) fn serve<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        let queue = &mut self.lanes[lane as usize].levels[level];
        queue.serve(chairs, at, &mut self.time[level]);
        self.refresh(chairs, lane);
    }

    /// Takes out a waiter for any other reason.
    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let place = chairs.place(at);
        let (lane, level) = (place.lane, usize::from(place.level));
        self.lanes[lane as usize].levels[level].remove(chairs, at);
        self.refresh(chairs, lane);
    }

    /// The pools of the lane in which `at` waits.
    pub(crate) fn pools_of(&self, lane: u32) -> &Pools {
        &self.groups[self.lanes[lane as usize].group as usize].pools
    }

    /// The best waiter of the groups in `scope` that pump number `pump` has not found busy.
    pub(crate) fn best(&self, scope: Scope<'_>, pump: u64) -> Option<Best> {
        match scope {
            Scope::Pool(pool) => self.best_of(self.groups_on(pool), pump),
            Scope::Pools(pools) => {
                let groups = pools.iter().flat_map(|&pool| self.groups_on(pool));
                self.best_of(groups, pump)
            }
            Scope::All => self.best_of(self.groups.iter().map(|(group, _)| group as u32), pump),
        }
    }

    /// Notes that pump number `pump` found the group busy.
    pub(crate) fn block(&mut self, group: u32, pump: u64) {
        self.groups[group as usize].blocked_in = pump;
    }

    /// Clears the way for groups that pump number `pump` found busy just before `pool` got a free slot, if
    /// they go before `rank`. Says whether there was one.
    pub(crate) fn unblock_better(&mut self, pool: Pool, rank: Rank, pump: u64) -> bool {
        let mut any = false;
        let Some(groups) = self.by_pool.get(pool.0 as usize) else {
            return false;
        };
        for &group in groups {
            let group = &mut self.groups[group as usize];
            if group.blocked_in == pump && group.order.first().is_some_and(|(r, _)| r < rank) {
                group.blocked_in = NOT_BLOCKED;
                any = true;
            }
        }
        any
    }

    /// The waiters that compete with those of `lane`, in the order in which they would be served.
    pub(crate) fn forecast<T>(&self, chairs: &Chairs<T>, lane: u32) -> Vec<u32> {
        let group = &self.groups[self.lanes[lane as usize].group as usize];
        let mut order: Vec<(Rank, u32)> = Vec::new();
        for (_, &lane) in &group.lanes {
            for (level, queue) in self.lanes[lane as usize].levels.iter().enumerate() {
                let level = level as u8;
                let turns = queue.forecast(chairs).into_iter();
                order.extend(turns.map(|(turn, at)| ((level, turn), at)));
            }
        }
        order.sort_unstable();
        order.into_iter().map(|(_, at)| at).collect()
    }

    fn groups_on(&self, pool: Pool) -> impl Iterator<Item = u32> + '_ {
        self.by_pool
            .get(pool.0 as usize)
            .into_iter()
            .flatten()
            .copied()
    }

    fn best_of(&self, groups: impl Iterator<Item = u32>, pump: u64) -> Option<Best> {
        let (rank, lane, group) = groups
            .filter_map(|index| {
                let group = &self.groups[index as usize];
                let (rank, member) = group.order.first()?;
                (group.blocked_in != pump).then(|| (rank, group.lanes[member as usize], index))
            })
            .min()?;
        let at = self.lanes[lane as usize].head?;
        Some(Best { at, group, rank })
    }

    /// Brings the lane's standing in its group up to date.
    fn refresh<T>(&mut self, chairs: &Chairs<T>, index: u32) {
        let lane = &mut self.lanes[index as usize];
        let head = (0..)
            .zip(&lane.levels)
            .find_map(|(level, queue)| queue.head(chairs).map(|(at, turn)| (at, (level, turn))));
        let order = &mut self.groups[lane.group as usize].order;
        match head {
            Some((_, rank)) => order.set(lane.member, rank),
            None => order.remove(lane.member),
        }
        self.occupied += usize::from(head.is_some());
        self.occupied -= usize::from(lane.head.is_some());
        lane.head = head.map(|(at, _)| at);
    }

    fn open(&mut self, key: L, pools: impl FnOnce(&L) -> Pools) -> u32 {
        if self.lanes.len() >= 2 * self.occupied + SPARE_LANES {
            self.close_empty_lanes();
        }
        let group = self.group_of(pools(&key));
        let lane = self.lanes.vacant_key() as u32;
        let member = self.groups[group as usize].lanes.insert(lane) as u32;
        let (discipline, epoch) = (self.discipline, self.epoch);
        self.lanes.insert(Lane {
            key: key.clone(),
            group,
            member,
            levels: self
                .time
                .iter()
                .map(|_| Queue::new(discipline, epoch))
                .collect(),
            head: None,
        });
        self.by_key.insert(key, lane);
        lane
    }

    fn group_of(&mut self, pools: Pools) -> u32 {
        if let Some(&group) = self.by_pools.get(&pools) {
            return group;
        }
        let group = self.groups.insert(Group {
            pools: pools.clone(),
            lanes: Slab::new(),
            order: Heap::new(),
            blocked_in: NOT_BLOCKED,
        }) as u32;
        for pool in pools.iter().map(|pool| pool.0 as usize) {
            if pool >= self.by_pool.len() {
                self.by_pool.resize_with(pool + 1, Vec::new);
            }
            self.by_pool[pool].push(group);
        }
        self.by_pools.insert(pools, group);
        group
    }

    fn close_empty_lanes(&mut self) {
        let (groups, by_key) = (&mut self.groups, &mut self.by_key);
        self.lanes.retain(|_, lane| {
            if lane.head.is_none() {
                groups[lane.group as usize]
                    .lanes
                    .remove(lane.member as usize);
                by_key.remove(&lane.key);
            }
            lane.head.is_some()
        });
        let (by_pools, by_pool) = (&mut self.by_pools, &mut self.by_pool);
        groups.retain(|index, group| {
            if group.lanes.is_empty() {
                by_pools.remove(&group.pools);
                for pool in group.pools.iter() {
                    by_pool[pool.0 as usize].retain(|&other| other != index as u32);
                }
            }
            !group.lanes.is_empty()
        });
    }
}
