//! Waiters of all lanes by level, each level in the order of arrival.

use crate::admit::ordered_queue::{ArrivalKey, OrderedQueue};
use crate::admit::waiters::Waiters;

/// One queue for each level: finds the waiter that is evicted first, and the one that arrived first.
#[derive(Debug)]
pub(crate) struct ByLevel(Box<[OrderedQueue<ArrivalKey>]>);

impl ByLevel {
    pub(crate) fn new(levels: usize) -> Self {
        Self((0..levels).map(|_| OrderedQueue::new()).collect())
    }

    /// Adds a waiter at its level.
    pub(crate) fn push<T>(&mut self, waiters: &Waiters<T>, idx: u32) {
        let meta = waiters.meta(idx);
        self.0[usize::from(meta.level)].push(meta.key(), idx);
    }

    /// Removes a waiter from this level. It waits no more, or at another level now.
    pub(crate) fn remove<T>(&mut self, waiters: &Waiters<T>, idx: u32, level: u8) {
        let key = waiters.meta(idx).key();
        self.0[usize::from(level)].remove(key, |&(_, seq), idx| waiters.waits_at(level, idx, seq));
    }

    /// Gives back memory that the waiters of now do not need.
    pub(crate) fn trim(&mut self) {
        self.0.iter_mut().for_each(OrderedQueue::trim);
    }

    /// The waiter that arrived first, whatever its level.
    pub(crate) fn first(&self) -> Option<u32> {
        let heads = self.0.iter().filter_map(OrderedQueue::first);
        heads.min_by_key(|(key, _)| *key).map(|(_, idx)| idx)
    }

    /// The waiter that is evicted first: the latest of the lowest level.
    pub(crate) fn lowest_and_latest(&self) -> Option<u32> {
        // The lowest level is the last.
        self.0.iter().rev().find_map(OrderedQueue::tail)
    }
}
