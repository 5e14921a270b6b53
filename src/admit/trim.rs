//! Giving memory back after a burst.
//!
//! All that is kept of waiters grows with the most that ever waited at once. After a burst of a million tenants that
//! would be hundreds of megabytes for as long as the room lives. So the room remembers how many waited at most since it
//! last looked, and if that is a small part of what it has memory for, it gives the rest back. It looks when it becomes
//! empty, when its timer has nothing to do any more, and now and then when a request arrives. A room that fills up
//! again and again keeps its memory.

use std::time::{Duration, Instant};

use super::Capacity;
use super::nanos::{Nanos, span};
use super::room::WaitingRoom;

/// Memory for this many waiters is always kept: some hundred kilobytes.
const KEPT: usize = 1_024;
/// Memory is given back if this many times as many waiters would fit as have waited since the last look.
const EXCESS: usize = 8;
/// How long a room that does not become empty has to be small.
const INTERVAL: Duration = Duration::from_secs(10);

/// How full the room was since it last looked.
#[derive(Debug, Default)]
pub(crate) struct HighWater {
    most: usize,
    looked: Nanos,
}

impl HighWater {
    #[inline]
    pub(crate) fn note(&mut self, waiting: usize) {
        self.most = self.most.max(waiting);
    }

    /// Whether memory for so many is far more than was needed since the last look, which was before this one.
    fn is_excess(&mut self, room_for: usize, waiting: usize) -> bool {
        let most = std::mem::replace(&mut self.most, waiting);
        room_for > KEPT && most.saturating_mul(EXCESS) < room_for
    }
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// A waiter's place was given up. It may have been the last.
    #[inline]
    pub(super) fn trim_if_empty(&mut self) {
        if self.chairs.is_empty() && self.chairs.room_for() > KEPT {
            self.trim_empty();
        }
    }

    /// For a timer that has nothing else to do: gives memory back, or says when to look again. `None`: not before
    /// something else happens.
    pub(crate) fn trim_idle(&mut self, now: Instant) -> Option<Instant> {
        self.trim_if_empty();
        // Answers that are still to be collected take up places, but not for long.
        let keeps_more = self.waiting == 0 && self.chairs.room_for() > KEPT;
        keeps_more.then(|| now + INTERVAL)
    }

    #[cold]
    fn trim_empty(&mut self) {
        if self.high_water.is_excess(self.chairs.room_for(), 0) {
            self.chairs.trim();
            let _ = self.lanes.renew(&self.config);
            self.clear_indices();
        }
    }

    /// A request arrives: gives memory back if the room has been small for a while.
    #[inline]
    pub(super) fn trim_if_due(&mut self, now: Nanos) {
        if self.chairs.room_for() > KEPT
            && now >= self.high_water.looked.saturating_add(span(INTERVAL))
        {
            self.trim_in_use(now);
        }
    }

    #[cold]
    fn trim_in_use(&mut self, now: Nanos) {
        self.high_water.looked = now;
        if self
            .high_water
            .is_excess(self.chairs.room_for(), self.waiting)
        {
            self.chairs.trim();
            self.lanes.trim(&mut self.chairs);
            self.ends.trim(&self.chairs);
            self.rises.trim(&self.chairs);
            self.tenants.shrink_to_fit();
        }
    }
}
