//! The discipline `fifo`, which is first come, first served. While the queue is a standing queue, the configuration may
//! reverse the order.

use super::{DispatchKey, FlowSnapshot};
use crate::admit::age_order::AgeOrder;
use crate::admit::ordered_queue::{ArrivalKey, List, OrderedQueue};
use crate::admit::waiters::Waiters;

/// The waiters of one level of one lane, in the order of arrival.
#[derive(Debug)]
pub(crate) struct FifoQueue {
    queue: OrderedQueue,
    pub(super) order: AgeOrder,
}

impl FifoQueue {
    pub(super) fn new(order: AgeOrder) -> Self {
        let queue = OrderedQueue::new(List::Lane);
        Self { queue, order }
    }

    /// Adds a waiter, and returns `true` if the head may be another now.
    #[inline]
    pub(super) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        // If the newest go first, the head is at the other end of the queue, where most waiters are pushed.
        self.queue.push(waiters, idx) || self.order == AgeOrder::NewestFirst
    }

    /// Removes a waiter, and returns `true` if the head may be another now.
    #[inline]
    pub(super) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        self.queue.remove(waiters, idx) || self.order == AgeOrder::NewestFirst
    }

    #[inline]
    pub(super) fn head<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        self.order.head(&self.queue, waiters)
    }

    /// Returns the key of a waiter, which orders it among the heads of other lanes.
    #[inline]
    pub(super) fn key(&self, key: ArrivalKey) -> DispatchKey {
        let (since, seq) = self.order.key(key);
        DispatchKey::new(since, seq, 0)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn snapshot<T>(&self, waiters: &Waiters<T>) -> impl Iterator<Item = FlowSnapshot> {
        let all = self.queue.to_vec(waiters).into_iter();
        all.map(|idx| FlowSnapshot::one(self.key(waiters.meta(idx).key()), idx))
    }
}
