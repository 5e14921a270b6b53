//! Waiters by level, each level in the order of arrival.

use super::age_order::AgeOrder;
use super::ordered_queue::{List, OrderedQueue};
use super::waiters::Waiters;

/// One queue for each level: finds the waiter that goes first, the one that is evicted first, and the one that arrived first.
#[derive(Debug)]
pub(crate) struct ByLevel {
    /// Level 0 is the most urgent.
    levels: Box<[OrderedQueue]>,
}

impl ByLevel {
    pub(crate) fn new(list: List, levels: usize) -> Self {
        Self {
            levels: (0..levels).map(|_| OrderedQueue::new(list)).collect(),
        }
    }

    /// Adds a waiter at its level.
    #[inline]
    pub(crate) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) {
        let level = waiters.meta(idx).level;
        self.levels[usize::from(level)].push(waiters, idx);
    }

    /// Removes a waiter from this level.
    #[inline]
    pub(crate) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32, level: u8) {
        self.levels[usize::from(level)].remove(waiters, idx);
    }

    /// How many wait at this level.
    pub(crate) fn count(&self, level: u8) -> usize {
        let level = self.levels.get(usize::from(level));
        level.map_or(0, OrderedQueue::len)
    }

    /// How many wait at this level and those above.
    pub(crate) fn count_above(&self, level: u8) -> usize {
        let levels = self.levels.iter().take(usize::from(level) + 1);
        levels.map(OrderedQueue::len).sum()
    }

    /// The waiter of the first level that has one that goes next.
    #[inline]
    pub(crate) fn next<T>(&self, waiters: &Waiters<T>, order: AgeOrder) -> Option<u32> {
        let mut levels = self.levels.iter();
        levels.find_map(|level| order.head(level, waiters))
    }

    /// The first waiter of each level that has one, the most urgent level first.
    #[inline]
    pub(crate) fn heads(&self) -> impl Iterator<Item = u32> {
        self.levels.iter().filter_map(OrderedQueue::head)
    }

    /// The waiter that arrived first, whatever its level.
    pub(crate) fn oldest<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        self.heads().min_by_key(|&idx| waiters.meta(idx).key())
    }

    /// Returns the waiter without a deadline that entered the room first, whatever its level.
    pub(crate) fn first_silent<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        let levels = self.levels.iter();
        let first = levels.filter_map(|level| level.first_silent(waiters));
        first.min_by_key(|&idx| waiters.meta(idx).entry_key())
    }

    /// The waiter that is evicted first: the latest of the lowest level.
    pub(crate) fn lowest_and_latest(&self) -> Option<u32> {
        // The lowest level is the last.
        self.levels.iter().rev().find_map(OrderedQueue::tail)
    }

    /// All waiters of a level, in this order.
    pub(crate) fn level<T>(&self, waiters: &Waiters<T>, level: u8, order: AgeOrder) -> Vec<u32> {
        order.to_vec(&self.levels[usize::from(level)], waiters)
    }
}
