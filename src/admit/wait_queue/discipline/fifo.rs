//! The discipline `fifo`: first come, first served. While the queue stands, perhaps the other way round.

use super::{DispatchKey, FlowSnapshot};
use crate::admit::age_order::AgeOrder;
use crate::admit::ordered_queue::{ArrivalKey, List, OrderedQueue};
use crate::admit::waiters::Waiters;

/// Waiters of one level of one lane, in the order of arrival.
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

    /// Adds a waiter, and says whether the head may be another now.
    #[inline]
    pub(super) fn push<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        // Newest first, the head is at the other end, where most are pushed.
        self.queue.push(waiters, idx) || self.order == AgeOrder::NewestFirst
    }

    /// Removes a waiter, and says whether the head may be another now.
    #[inline]
    pub(super) fn remove<T>(&mut self, waiters: &mut Waiters<T>, idx: u32) -> bool {
        self.queue.remove(waiters, idx) || self.order == AgeOrder::NewestFirst
    }

    #[inline]
    pub(super) fn head<T>(&self, waiters: &Waiters<T>) -> Option<u32> {
        self.order.head(&self.queue, waiters)
    }

    /// The key of a waiter among the heads of other lanes.
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
