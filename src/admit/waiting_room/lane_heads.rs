//! Reports for a capacity with slots on demand, about the head of each lane and the slots that a waiter waits for.

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
pub struct LaneHead<L> {
    /// The lane.
    pub lane: L,
    /// The level in which the waiter waits, which is the level of its ticket or a higher one after a promotion.
    pub level: Priority,
    /// The instant of the waiter's arrival.
    pub arrival: Instant,
}

/// Slots that are being started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Starting {
    /// The share of the start that is done, from 0 to 1, if it is known.
    pub(crate) progress: Option<f32>,
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Returns the head of each lane that has waiters, in arbitrary order.
    #[must_use]
    pub fn lane_heads(&self) -> Vec<LaneHead<C::Lane>> {
        let epoch = self.base().clock.epoch;
        let heads = self.queue.heads().into_iter();
        let heads = heads.map(|(lane, meta)| LaneHead {
            lane,
            level: Priority(meta.level),
            arrival: epoch.instant(meta.limits.arrival).unwrap_or(epoch.0),
        });
        heads.collect()
    }

    /// Returns the number of waiters for each set of pools that can serve them. A set may occur once for each
    /// discipline. Waiters of a tenant that is at its limit are not counted.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<(PoolSet, usize)> {
        self.queue.waiting_for()
    }

    /// Returns the progress of a start, while the waiter needs slots that are being started. Returns `None` if any of
    /// its pools is ready, or if all of them are stopped.
    pub(crate) fn starting(&self, capacity: &C, id: WaiterId) -> Option<Starting> {
        let mut starting = None;
        for &pool in self.queue.pools_of(id.idx) {
            match ask::slot_state(capacity, pool) {
                SlotState::Ready => return None,
                SlotState::Stopped => {}
                SlotState::Starting { progress } => {
                    // The first pool's progress stands for all.
                    starting.get_or_insert(Starting { progress });
                }
            }
        }
        starting
    }

    /// Returns `true` if the head of a lane may have changed since the last call.
    pub(crate) fn take_lane_heads_changed(&mut self) -> bool {
        self.queue.take_heads_changed()
    }

    /// Returns the number of waiters for each `key` of their demands. O(n).
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
