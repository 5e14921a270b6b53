//! Opening and closing of lanes and groups. A lane is opened for its first waiter, and closed when many lanes are
//! empty.

use std::hash::Hash;

use slab::Slab;

use super::{Group, Lane, Lanes, NOT_BLOCKED, hash_of};
use crate::admit::Discipline;
use crate::admit::capacity::{Partition, PoolSet};
use crate::admit::heap::Heap;
use crate::admit::wait_queue::discipline::LevelQueue;
use crate::admit::wait_queue::order::has_own_rules;

/// The number of empty lanes that are kept for their next waiter, besides as many as there are lanes with waiters.
const SPARE_LANES: usize = 64;

impl<L: Clone + Eq + Hash> Lanes<L> {
    #[cold]
    pub(super) fn open(&mut self, key: L, pools: PoolSet, partition: Partition) -> u32 {
        // A sweep of n lanes comes after at least n / 2 of them became empty, so its cost is O(1) amortised.
        if self.lanes.len() >= 2 * self.occupied + SPARE_LANES {
            self.close_empty_lanes();
        }
        let discipline = partition.discipline.unwrap_or(self.discipline);
        self.are_needed |= has_own_rules(partition);
        self.has_bounds |= partition.max_size.is_some();
        self.has_fair |= discipline == Discipline::Fair;
        let group = self.find_or_open_group(pools, discipline);
        // This is the number that `insert` below gives to the lane.
        let lane = self.lanes.vacant_key() as u32;
        let member = self.groups[group as usize].lanes.insert(lane) as u32;
        let levels = 0..self.queues_of(discipline);
        let levels = levels.map(|_| LevelQueue::new(discipline, &self.weights));
        self.lanes.insert(Lane {
            key: key.clone(),
            hash: hash_of(self.by_key.hasher(), &key),
            partition,
            group,
            member,
            levels: levels.collect(),
            head: None,
            parked: 0,
        });
        self.by_key.insert(key, lane);
        lane
    }

    /// Returns the number of queues that a lane of this discipline has.
    fn queues_of(&self, discipline: Discipline) -> usize {
        match discipline {
            Discipline::Fifo | Discipline::Fair if self.weights.have_levels() => 1,
            _ => self.levels,
        }
    }

    /// Returns the group of lanes with these pools and this discipline, and opens it if necessary.
    fn find_or_open_group(&mut self, pools: PoolSet, discipline: Discipline) -> u32 {
        let levels = self.queues_of(discipline);
        let alike = self.by_pools.entry(pools.clone()).or_default();
        let is_of = |group: &&u32| self.groups[**group as usize].discipline == discipline;
        if let Some(&group) = alike.iter().find(is_of) {
            return group;
        }
        let clocks = match discipline {
            Discipline::Fair => levels,
            Discipline::Fifo if self.weights.have_levels() => levels,
            _ => 0,
        };
        let group = self.groups.insert(Group {
            pools: pools.clone(),
            discipline,
            lanes: Slab::new(),
            order: Heap::new(),
            blocked_in: NOT_BLOCKED,
            looked_again_in: NOT_BLOCKED,
            waiting: vec![0; levels].into(),
            patient: 0,
            // The clocks must not begin at 0, because a flow that moves here after a reconfiguration begins at `base`
            // minus the service that it lags behind.
            clocks: vec![self.base; clocks].into(),
        }) as u32;
        alike.push(group);
        for pool in pools.iter().map(|pool| pool.0 as usize) {
            // Pools are numbered densely, so the vector can be indexed by them.
            if pool >= self.by_pool.len() {
                self.by_pool.resize_with(pool + 1, Vec::new);
            }
            self.by_pool[pool].push(group);
        }
        group
    }

    /// Closes all lanes without waiters, and then all groups without lanes.
    fn close_empty_lanes(&mut self) {
        let (groups, by_key) = (&mut self.groups, &mut self.by_key);
        self.lanes.retain(|_, lane| {
            let is_kept = lane.head.is_some() || lane.parked > 0;
            if !is_kept {
                groups[lane.group as usize]
                    .lanes
                    .remove(lane.member as usize);
                by_key.remove(&lane.key);
            }
            is_kept
        });
        let (by_pools, by_pool) = (&mut self.by_pools, &mut self.by_pool);
        groups.retain(|index, group| {
            // A group without lanes is without waiters, so its number can be given to another group.
            if group.lanes.is_empty() {
                if let Some(alike) = by_pools.get_mut(&group.pools) {
                    alike.retain(|&other| other != index as u32);
                    if alike.is_empty() {
                        by_pools.remove(&group.pools);
                    }
                }
                for pool in group.pools.iter() {
                    by_pool[pool.0 as usize].retain(|&other| other != index as u32);
                }
            }
            !group.lanes.is_empty()
        });
    }
}
