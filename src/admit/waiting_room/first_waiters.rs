//! What a capacity that makes its slots is told: what the first waiter of each lane is.

#[cfg(feature = "swap")]
use std::collections::HashMap;
#[cfg(feature = "swap")]
use std::hash::Hash;
use std::time::Instant;

use super::{AnyRoom, WaitingRoom};
use crate::admit::room::slot_state;
use crate::admit::{Capacity, PoolSet, Priority, SlotState, WaiterId};

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
    /// The first waiter of each lane that has one, in no particular order. Empty where the capacity makes no slots and has
    /// one lane.
    #[must_use]
    pub fn first_waiters(&self) -> Vec<FirstWaiter<C::Lane>> {
        let AnyRoom::Full(room) = &self.room else {
            return Vec::new();
        };
        let base = self.base();
        let first = room.heads().map(|(lane, meta)| FirstWaiter {
            lane: lane.clone(),
            level: Priority(meta.level),
            arrival: base
                .epoch
                .instant(meta.limits.arrival)
                .unwrap_or(base.epoch.0),
        });
        first.collect()
    }

    /// Returns the number of waiters that the same pools can serve, for each set of pools that has waiters. A set may occur
    /// once for each discipline. Waiters whose tenant is at its limit are not counted. Empty where the capacity has one lane.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<(PoolSet, usize)> {
        let AnyRoom::Full(room) = &self.room else {
            return Vec::new();
        };
        let waiting = room.waiting();
        waiting.map(|(pools, n)| (pools.clone(), n)).collect()
    }

    /// How far the slots have come that a waiter waits for, if none of them is there and some are being made.
    pub(crate) fn making(&self, capacity: &C, id: WaiterId) -> Option<Making> {
        let AnyRoom::Full(room) = &self.room else {
            return None;
        };
        let mut making = None;
        for &pool in room.pools(id).iter() {
            match slot_state(capacity, pool) {
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
        match &mut self.room {
            AnyRoom::Plain(_) => false,
            AnyRoom::Full(room) => room.take_heads_changed(),
        }
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
