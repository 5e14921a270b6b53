//! The discipline `deadline`, which serves the earliest end of a wait first.

use std::collections::BTreeMap;

use super::{DispatchKey, FlowSnapshot};
use crate::admit::nanos::{NEVER, Nanos};
use crate::admit::ordered_queue::ArrivalKey;
use crate::admit::room_base::BEHIND;
use crate::admit::wait_queue::lanes::MAX_LOOKS;
use crate::admit::waiters::Waiters;

/// The end of a wait, then the arrival. Equal ends, and waits without an end, go in the order of arrival.
pub(in crate::admit::wait_queue) type DeadlineKey = (Nanos, ArrivalKey);

/// The waiters of one level of one lane, in the order in which their waits end.
#[derive(Debug, Default)]
pub(crate) struct DeadlineQueue(BTreeMap<DeadlineKey, u32>);

impl DeadlineQueue {
    /// Adds a waiter, and returns `true` if it is the head now.
    pub(super) fn push<T>(&mut self, waiters: &Waiters<T>, idx: u32) -> bool {
        self.0.insert(key_of(waiters, idx), idx);
        self.head() == Some(idx)
    }

    /// Removes a waiter, and returns `true` if it was the head.
    pub(super) fn remove<T>(&mut self, waiters: &Waiters<T>, idx: u32) -> bool {
        let was_head = self.head() == Some(idx);
        self.0.remove(&key_of(waiters, idx));
        was_head
    }

    pub(super) fn head(&self) -> Option<u32> {
        Some(*self.0.first_key_value()?.1)
    }

    /// Estimates the number of waiters that go before a newcomer with this key. It counts up to [`MAX_LOOKS`] of them
    /// exactly, and beyond that returns the length of the queue.
    pub(super) fn ahead(&self, key: DeadlineKey) -> usize {
        match self.0.range(..key).take(MAX_LOOKS).count() {
            MAX_LOOKS => self.0.len(),
            few => few,
        }
    }

    pub(super) fn snapshot(&self) -> impl Iterator<Item = FlowSnapshot> {
        let all = self.0.iter();
        all.map(|(&end, &idx)| FlowSnapshot::one(key(end), idx))
    }
}

pub(in crate::admit::wait_queue) fn key_of<T>(waiters: &Waiters<T>, idx: u32) -> DeadlineKey {
    place(waiters.end(idx), waiters.meta(idx).key())
}

/// Returns the key of a request with this end and this key in the order of arrival. A retry that came too early goes
/// behind all others, regardless of the end of its wait.
pub(super) fn place(end: Nanos, key: ArrivalKey) -> DeadlineKey {
    match key.0 < BEHIND {
        true => (end, key),
        false => (NEVER, key),
    }
}

/// Converts the key of a waiter into one that is comparable with the heads of other lanes.
pub(super) fn key((end, (since, seq)): DeadlineKey) -> DispatchKey {
    DispatchKey::new(end, since, seq)
}
