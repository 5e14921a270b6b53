//! The rule by which a waiting room gives memory back after a burst.
//!
//! The room gives memory back if the highest number of waiters since its last check is less than an eighth of the
//! waiters that it has memory for. It checks when it becomes empty, when its timer has nothing else to do, and at an
//! arrival at least 10 s after the last check. A room that fills up again and again keeps its memory.

use std::time::Duration;

use super::nanos::{Nanos, span};

/// The number of waiters whose memory is always kept, which is about 100 kB.
pub(crate) const KEPT: usize = 1_024;
/// The factor by which memory must exceed the highest number of waiters since the last check, before it is given back.
const EXCESS: usize = 8;
/// The time for which a room that does not become empty must have few waiters.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// The highest number of waiters since the last check.
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

    /// Returns `true` if a check is due, in a room with memory for `capacity` waiters.
    #[inline]
    pub(crate) fn is_due(&self, capacity: usize, now: Nanos) -> bool {
        // A room with little memory has nothing to give back.
        capacity > KEPT && now >= self.looked.saturating_add(span(INTERVAL))
    }

    /// Checks at `now`, and returns `true` if memory should be given back.
    pub(crate) fn look(&mut self, capacity: usize, waiting: usize, now: Nanos) -> bool {
        self.looked = now;
        self.is_excess(capacity, waiting)
    }

    /// Returns `true` if memory for `capacity` waiters is far more than was needed since the last check. The count then
    /// begins anew at `waiting`.
    pub(crate) fn is_excess(&mut self, capacity: usize, waiting: usize) -> bool {
        let most = std::mem::replace(&mut self.most, waiting);
        capacity > KEPT && most.saturating_mul(EXCESS) < capacity
    }
}
