//! Partitions of the waiting room that have a bound of their own.
//!
//! Without partitions, the requests for one popular model could take every place, and those for all other models would
//! be rejected. Only partitions that have a bound and a waiter are stored here.

use std::collections::HashMap;

use super::eviction::EvictionOrder;
use crate::admit::ordered_queue::List;
use crate::admit::waiters::Waiters;
use crate::admit::{Partition, Tenant, WaitingRoomConfig};

/// The bounded partitions in which requests wait, by id.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    by_id: HashMap<u32, Usage>,
}

/// The waiters of one partition.
#[derive(Debug)]
struct Usage {
    max_size: Option<usize>,
    /// The number of requests that wait in the partition.
    waiting: usize,
    eviction: EvictionOrder,
}

impl Partitions {
    /// Adds a waiter to a partition, and updates the partition's bound.
    pub(crate) fn push<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        partition: Partition,
        idx: u32,
        config: &WaitingRoomConfig,
    ) {
        let discipline = partition.discipline.unwrap_or(config.discipline);
        let usage = self.by_id.entry(partition.id).or_insert_with(|| Usage {
            max_size: None,
            waiting: 0,
            eviction: EvictionOrder::new(List::Partition, discipline, config),
        });
        // The capacity may have changed the bound since the first waiter.
        usage.max_size = partition.max_size;
        usage.waiting += 1;
        usage.eviction.push(waiters, idx, config);
    }

    /// Removes a waiter that was at this level.
    pub(crate) fn remove<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        partition: u32,
        idx: u32,
        level: u8,
        config: &WaitingRoomConfig,
    ) {
        if let Some(usage) = self.by_id.get_mut(&partition) {
            usage.eviction.remove(waiters, idx, level, config);
            usage.waiting -= 1;
            // Demands may name any number of partitions, so the empty ones are dropped.
            if usage.waiting == 0 {
                self.by_id.remove(&partition);
            }
        }
    }

    /// Returns `true` if one more request may wait in the partition by its own bound.
    pub(crate) fn has_room(&self, partition: Partition) -> bool {
        let Some(max) = partition.max_size else {
            return true;
        };
        let usage = self.by_id.get(&partition.id);
        usage.map_or(0, |usage| usage.waiting) < max
    }

    /// Returns the ids of partitions in which more requests wait than their bounds allow, in ascending order.
    pub(crate) fn overfull(&self) -> Vec<u32> {
        let all = self.by_id.iter().filter(|(_, usage)| usage.is_overfull());
        let mut all: Vec<u32> = all.map(|(&id, _)| id).collect();
        all.sort_unstable();
        all
    }

    /// Returns the waiter of an overfull partition that is evicted next.
    pub(crate) fn excess(&self, partition: u32) -> Option<u32> {
        let usage = self.by_id.get(&partition)?;
        usage.eviction.last().filter(|_| usage.is_overfull())
    }

    /// Returns the waiter of the partition that loses its place to an arrival of this level and tenant.
    pub(crate) fn displaced_by(
        &self,
        partition: u32,
        level: u8,
        tenant: &Tenant,
        config: &WaitingRoomConfig,
    ) -> Option<u32> {
        let usage = self.by_id.get(&partition)?;
        usage.eviction.displaced_by(level, tenant, config)
    }

    /// Gives back the memory that the present waiters can do without.
    pub(crate) fn trim<T>(&mut self, waiters: &Waiters<T>) {
        let all = self.by_id.values_mut();
        all.for_each(|usage| usage.eviction.trim(waiters));
    }
}

impl Usage {
    fn is_overfull(&self) -> bool {
        self.max_size.is_some_and(|max| self.waiting > max)
    }
}
