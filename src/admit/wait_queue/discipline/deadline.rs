//! The discipline `deadline`: the earliest end of a wait first.

use super::{DispatchKey, FlowSnapshot};
use crate::admit::nanos::Nanos;
use crate::admit::ordered_queue::{ArrivalKey, OrderedQueue};
use crate::admit::waiters::Waiters;

/// The end of a wait; equal ends, and waits without one, in the order of arrival.
type DeadlineKey = (Nanos, ArrivalKey);

/// Waiters of one level of one lane, in the order in which their waits end.
#[derive(Debug)]
pub(crate) struct DeadlineQueue {
    queue: OrderedQueue<DeadlineKey>,
    /// Tells a living entry from that of a waiter that was promoted.
    level: u8,
}

impl DeadlineQueue {
    pub(super) fn new(level: u8) -> Self {
        Self {
            queue: OrderedQueue::new(),
            level,
        }
    }

    pub(super) fn push<T>(&mut self, waiters: &Waiters<T>, idx: u32) -> bool {
        self.queue.push(key_of(waiters, idx), idx)
    }

    pub(super) fn restore<T>(&mut self, waiters: &Waiters<T>, idx: u32) -> bool {
        self.queue.restore(key_of(waiters, idx), idx)
    }

    pub(super) fn remove<T>(&mut self, waiters: &Waiters<T>, idx: u32) {
        let level = self.level;
        self.queue
            .remove(key_of(waiters, idx), |&(_, (_, seq)), idx| {
                waiters.is_queued_at(level, idx, seq)
            });
    }

    pub(super) fn head(&self) -> Option<u32> {
        self.queue.head()
    }

    pub(super) fn head_key(&self) -> DispatchKey {
        self.queue
            .first()
            .map_or(DispatchKey::LAST, |(first, _)| key(first))
    }

    pub(super) fn trim(&mut self) {
        self.queue.trim();
    }

    pub(super) fn snapshot<T>(&self, waiters: &Waiters<T>) -> impl Iterator<Item = FlowSnapshot> {
        let is_alive =
            |&(_, (_, seq)): &DeadlineKey, idx| waiters.is_queued_at(self.level, idx, seq);
        let all = self.queue.to_vec(is_alive).into_iter();
        all.map(|idx| FlowSnapshot::one(key(key_of(waiters, idx)), idx))
    }
}

/// The key of a waiter in its queue.
fn key_of<T>(waiters: &Waiters<T>, idx: u32) -> DeadlineKey {
    (waiters.end(idx), waiters.meta(idx).key())
}

/// The key of a waiter among the heads of other lanes.
pub(super) fn key((end, (since, seq)): DeadlineKey) -> DispatchKey {
    DispatchKey::new(end, since, seq)
}
