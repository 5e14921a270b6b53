//! The discipline `fifo`: first come, first served.

use super::{DispatchKey, FlowSnapshot};
use crate::admit::ordered_queue::{ArrivalKey, OrderedQueue};
use crate::admit::waiters::Waiters;

/// Waiters of one level of one lane, in the order of arrival.
#[derive(Debug)]
pub(crate) struct FifoQueue {
    queue: OrderedQueue<ArrivalKey>,
    /// Tells a living entry from that of a waiter that was promoted.
    level: u8,
}

impl FifoQueue {
    pub(super) fn new(level: u8) -> Self {
        Self {
            queue: OrderedQueue::new(),
            level,
        }
    }

    #[inline]
    pub(super) fn push<T>(&mut self, waiters: &Waiters<T>, idx: u32) -> bool {
        self.queue.push(waiters.meta(idx).key(), idx)
    }

    pub(super) fn restore<T>(&mut self, waiters: &Waiters<T>, idx: u32) -> bool {
        self.queue.restore(waiters.meta(idx).key(), idx)
    }

    #[inline]
    pub(super) fn remove<T>(&mut self, waiters: &Waiters<T>, idx: u32) {
        let level = self.level;
        self.queue
            .remove(waiters.meta(idx).key(), |&(_, seq), idx| {
                waiters.is_queued_at(level, idx, seq)
            });
    }

    #[inline]
    pub(super) fn head(&self) -> Option<u32> {
        self.queue.head()
    }

    #[inline]
    pub(super) fn head_key(&self) -> DispatchKey {
        self.queue
            .first()
            .map_or(DispatchKey::LAST, |(arrival, _)| key(arrival))
    }

    pub(super) fn trim(&mut self) {
        self.queue.trim();
    }

    pub(super) fn snapshot<T>(&self, waiters: &Waiters<T>) -> impl Iterator<Item = FlowSnapshot> {
        let is_alive = |&(_, seq): &ArrivalKey, idx| waiters.is_queued_at(self.level, idx, seq);
        let all = self.queue.to_vec(is_alive).into_iter();
        all.map(|idx| FlowSnapshot::one(key(waiters.meta(idx).key()), idx))
    }
}

/// The key of a waiter among the heads of other lanes.
#[inline]
pub(super) fn key((since, seq): ArrivalKey) -> DispatchKey {
    DispatchKey::new(since, seq, 0)
}
