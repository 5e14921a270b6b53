//! Partitions of the waiting room that have a bound of their own.
//!
//! Without them, requests for one popular model take every place, and those for all others are rejected. Nothing is kept
//! of a partition without a bound, or in which none waits.

use std::collections::HashMap;

use super::super::Partition;
use super::super::waiters::Waiters;
use super::by_level::ByLevel;

/// The bounded partitions in which requests wait.
#[derive(Debug)]
pub(crate) struct Partitions {
    by_id: HashMap<u32, Usage>,
    levels: usize,
}

#[derive(Debug)]
struct Usage {
    max_size: Option<usize>,
    waiting: usize,
    arrivals: ByLevel,
}

impl Partitions {
    pub(crate) fn new(levels: usize) -> Self {
        Self {
            by_id: HashMap::new(),
            levels,
        }
    }

    /// Adds a waiter; to the order of arrival, too, if `in_order`.
    pub(crate) fn push<T>(
        &mut self,
        waiters: &Waiters<T>,
        partition: Partition,
        in_order: bool,
        idx: u32,
    ) {
        let usage = self.by_id.entry(partition.id).or_insert_with(|| Usage {
            max_size: None,
            waiting: 0,
            arrivals: ByLevel::new(self.levels),
        });
        usage.max_size = partition.max_size;
        usage.waiting += 1;
        if in_order {
            usage.arrivals.push(waiters, idx);
        }
    }

    /// Removes a waiter from this level. It does not wait there any more.
    pub(crate) fn remove<T>(
        &mut self,
        waiters: &Waiters<T>,
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
            if usage.waiting == 0 {
                self.by_id.remove(&partition);
            }
        }
    }

    /// Whether one more may wait in the partition, as far as its own bound goes.
    pub(crate) fn has_room(&self, partition: Partition) -> bool {
        let waiting = self
            .by_id
            .get(&partition.id)
            .map_or(0, |usage| usage.waiting);
        partition.max_size.is_none_or(|max| waiting < max)
    }

    /// Whether more wait in the partition than may.
    pub(crate) fn is_overfull(&self, partition: Partition) -> bool {
        partition.max_size.is_some()
            && self
                .by_id
                .get(&partition.id)
                .is_some_and(Usage::is_overfull)
    }

    /// Whether this is so of any partition.
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
