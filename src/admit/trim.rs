//! The rule by which a waiting room gives memory back after a burst.
//!
//! A room's memory grows with the highest number of waiters so far: hundreds of megabytes after a burst of a million
//! tenants. So a room remembers how many waited at most since its last look, and gives memory back if that is less than an
//! eighth of what it has memory for. It looks when it becomes empty, when its timer has nothing else to do, and at an
//! arrival at least 10 s after the last look. A room that fills up again and again keeps its memory.

use std::time::Duration;

use super::nanos::{Nanos, span};

/// Memory for this many waiters is always kept: about 100 kB.
pub(crate) const KEPT: usize = 1_024;
/// Memory is given back if there is memory for more than this many times as many waiters as waited since the last look.
const EXCESS: usize = 8;
/// How long a room that does not become empty has to have few waiters.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// How full the room was since it last looked.
#[derive(Debug, Default)]
pub(crate) struct HighWater {
    most: usize,
    looked: Nanos,
}

impl HighWater {
    /// Notes how many wait now.
    #[inline]
    pub(crate) fn note(&mut self, waiting: usize) {
        self.most = self.most.max(waiting);
    }

    /// Whether it is time to look, in a room with memory for `capacity` waiters.
    #[inline]
    pub(crate) fn is_due(&self, capacity: usize, now: Nanos) -> bool {
        // A room with little memory has nothing to give back.
        capacity > KEPT && now >= self.looked.saturating_add(span(INTERVAL))
    }

    /// Takes a look at `now`: whether memory should be given back.
    pub(crate) fn look(&mut self, capacity: usize, waiting: usize, now: Nanos) -> bool {
        self.looked = now;
        self.is_excess(capacity, waiting)
    }

    /// Whether memory for `capacity` waiters is far more than was needed since the last look.
    /// `waiting` is where the count begins anew.
    pub(crate) fn is_excess(&mut self, capacity: usize, waiting: usize) -> bool {
        let most = std::mem::replace(&mut self.most, waiting);
        capacity > KEPT && most.saturating_mul(EXCESS) < capacity
    }
}
