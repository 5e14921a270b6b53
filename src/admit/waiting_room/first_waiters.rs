//! What a capacity that makes its slots is told: what the first waiter of each lane is.

#[cfg(feature = "swap")]
use std::collections::HashMap;
#[cfg(feature = "swap")]
use std::hash::Hash;
use std::time::Instant;

use super::WaitingRoom;
use crate::admit::{Capacity, PoolSet, Priority, SlotState, WaiterId, ask};

/// The waiter of a lane that goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirstWaiter<L> {
    /// The lane.
    pub lane: L,
    /// The level in which the waiter waits: that of its ticket, or above if it was promoted.
    pub level: Priority,
    /// When it arrived.
    pub arrival: Instant,
}

/// Slots that are being made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Making {
    /// How far that has come, from 0 to 1, if it is known.
    pub(crate) progress: Option<f32>,
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// The first waiter of each lane that has one, in no particular order.
    #[must_use]
    pub fn first_waiters(&self) -> Vec<FirstWaiter<C::Lane>> {
        let epoch = self.base().clock.epoch;
        let heads = self.queue.heads().into_iter();
        let first = heads.map(|(lane, meta)| FirstWaiter {
            lane,
            level: Priority(meta.level),
            arrival: epoch.instant(meta.limits.arrival).unwrap_or(epoch.0),
        });
        first.collect()
    }

    /// Returns the number of waiters that the same pools can serve, for each set of pools that has waiters. A set may occur
    /// once for each discipline. Waiters whose tenant is at its limit are not counted.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<(PoolSet, usize)> {
        self.queue.waiting_for()
    }

    /// How far the slots have come that a waiter waits for, if none of them is there and some are being made.
    pub(crate) fn making(&self, capacity: &C, id: WaiterId) -> Option<Making> {
        let mut making = None;
        for &pool in self.queue.pools_of(id.idx) {
            match ask::slot_state(capacity, pool) {
                SlotState::Made => return None,
                SlotState::Unmade => {}
                SlotState::Making { progress } => {
                    // Of several, the first one's progress.
                    making.get_or_insert(Making { progress });
                }
            }
        }
        making
    }

    /// Whether any of the first waiters may be another one since this was last called.
    pub(crate) fn take_first_waiters_changed(&mut self) -> bool {
        self.queue.take_heads_changed()
    }

    /// How many wait for each thing, as `key` names it. O(n).
    #[cfg(feature = "swap")]
    pub(crate) fn count_waiters<K: Eq + Hash>(
        &self,
        key: impl Fn(&C::Demand) -> K,
    ) -> HashMap<K, usize> {
        let waiters = self.waiters();
        let mut counts = HashMap::new();
        for idx in waiters.oldest_first() {
            *counts.entry(key(&waiters.payload(idx).demand)).or_default() += 1;
        }
        counts
    }
}
