//! When memory is given back after a burst.
//!
//! What is kept of waiters grows with the most that ever waited at once; after a burst of a million tenants that would be
//! hundreds of megabytes. So a room remembers how many waited at most since it last looked, and gives memory back when
//! that is a small part of what it has memory for. It looks when it becomes empty, when its timer has nothing else to do,
//! and at an arrival at least 10 s after the last look. A room that fills up again and again keeps its memory.

use std::time::Duration;

use super::nanos::{Nanos, span};

/// Memory for this many waiters is always kept: about 100 kB.
pub(crate) const KEPT: usize = 1_024;
/// Memory is given back if there is memory for this many times as many waiters as waited since the last look.
const EXCESS: usize = 8;
/// How long a room that does not become empty has to be small.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

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

    /// Whether it is time to look, in a room with memory for `capacity` waiters.
    #[inline]
    pub(crate) fn is_due(&self, capacity: usize, now: Nanos) -> bool {
        capacity > KEPT && now >= self.looked.saturating_add(span(INTERVAL))
    }

    /// Looks at `now`.
    pub(crate) fn look(&mut self, capacity: usize, waiting: usize, now: Nanos) -> bool {
        self.looked = now;
        self.is_excess(capacity, waiting)
    }

    /// Whether memory for `capacity` waiters is far more than was needed since the last look.
    pub(crate) fn is_excess(&mut self, capacity: usize, waiting: usize) -> bool {
        let most = std::mem::replace(&mut self.most, waiting);
        capacity > KEPT && most.saturating_mul(EXCESS) < capacity
    }
}
