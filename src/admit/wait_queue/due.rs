//! A cheap check for waits that may have ended, for a queue that has to check at each event.
//!
//! Converting an instant takes longer than taking an item out. So the queue keeps the instant before which every wait
//! still goes on, and compares that with the clock.

use std::hash::Hash;
use std::time::Instant;

use super::WaitQueue;
use crate::admit::nanos::{NEVER, Nanos};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Returns `true` if a wait can end or an item can be promoted.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.first_end() < NEVER || self.next_promotion() < NEVER
    }

    /// Returns the current time if [`advance`](Self::advance) may have something to do in a queue that is
    /// [timed](Self::is_timed), and `None` otherwise.
    #[inline]
    pub(crate) fn due(&mut self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        let (not_before, may_promote) = (self.not_before(), self.next_promotion() < NEVER);
        let now = now();
        let may_expire = not_before.is_some_and(|end| end <= now);
        (may_expire || may_promote).then_some(now)
    }

    /// Returns a time before which every wait goes on, or `NEVER` if all waits are without an end. It may be earlier
    /// than all ends.
    #[inline]
    pub(crate) fn first_end(&self) -> Nanos {
        self.common.timeouts.not_before()
    }

    /// Returns an instant before which every wait goes on, or `None` if all waits are without an end. It may be earlier
    /// than all ends, but is later than the latest [`advance`](Self::advance).
    #[inline]
    fn not_before(&mut self) -> Option<Instant> {
        let not_before = self.common.timeouts.not_before();
        // The conversion is rare: with `max_wait` alone, the value changes once in each `max_wait`.
        if self.not_before.0 != not_before {
            self.not_before = (not_before, self.common.base.clock.epoch.instant(not_before));
        }
        self.not_before.1
    }
}
