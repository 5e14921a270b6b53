//! Partitions of the waiting room that have a bound of their own.
//!
//! Without them, requests for one popular model take every place, and those for all others are rejected. A partition
//! without a bound or without a waiter is not kept.

use std::collections::HashMap;

use crate::admit::Partition;
use crate::admit::by_level::ByLevel;
use crate::admit::ordered_queue::List;
use crate::admit::waiters::Waiters;

/// The bounded partitions in which requests wait, by id.
#[derive(Debug)]
pub(crate) struct Partitions {
    by_id: HashMap<u32, Usage>,
    levels: usize,
}

/// The waiters of one partition.
#[derive(Debug)]
struct Usage {
    max_size: Option<usize>,
    /// How many requests wait in it.
    waiting: usize,
    /// They, by level, if one may displace another; else empty.
    arrivals: ByLevel,
}

impl Partitions {
    pub(crate) fn new(levels: usize) -> Self {
        Self {
            by_id: HashMap::new(),
            levels,
        }
    }

    /// Adds a waiter, with its place in the order of arrival if `in_order`.
    pub(crate) fn push<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        partition: Partition,
        in_order: bool,
        idx: u32,
    ) {
        let usage = self.by_id.entry(partition.id).or_insert_with(|| Usage {
            max_size: None,
            waiting: 0,
            arrivals: ByLevel::new(List::Partition, self.levels),
        });
        // The capacity may have changed it since the first waiter.
        usage.max_size = partition.max_size;
        usage.waiting += 1;
        if in_order {
            usage.arrivals.push(waiters, idx);
        }
    }

    /// Removes a waiter, from this level. `in_order` as when it was added.
    pub(crate) fn remove<T>(
        &mut self,
        waiters: &mut Waiters<T>,
        partition: u32,
        in_order: bool,
        idx: u32,
        level: u8,
    ) {
        if let Some(usage) = self.by_id.get_mut(&partition) {
            if in_order {
                usage.arrivals.remove(waiters, idx, level);
            }
            usage.waiting -= 1;
            // Demands may name any number of partitions: the empty ones go.
            if usage.waiting == 0 {
                self.by_id.remove(&partition);
            }
        }
    }

    /// Whether one more request may wait in the partition, by its own bound.
    pub(crate) fn has_room(&self, partition: Partition) -> bool {
        let Some(max) = partition.max_size else {
            return true;
        };
        let usage = self.by_id.get(&partition.id);
        usage.map_or(0, |usage| usage.waiting) < max
    }

    /// Whether more requests wait in the partition than its bound allows.
    pub(crate) fn is_overfull(&self, partition: Partition) -> bool {
        partition.max_size.is_some()
            && self
                .by_id
                .get(&partition.id)
                .is_some_and(Usage::is_overfull)
    }

    /// Whether any partition is overfull.
    pub(crate) fn any_overfull(&self) -> bool {
        self.by_id.values().any(Usage::is_overfull)
    }

    /// The waiter of the partition that is evicted first.
    pub(crate) fn lowest_and_latest(&self, partition: u32) -> Option<u32> {
        self.by_id.get(&partition)?.arrivals.lowest_and_latest()
    }
}

impl Usage {
    fn is_overfull(&self) -> bool {
        self.max_size.is_some_and(|max| self.waiting > max)
    }
}
