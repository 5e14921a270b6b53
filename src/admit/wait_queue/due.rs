//! Whether a wait may have ended, for a queue that is asked that at each event.
//!
//! To convert an instant takes longer than to take an item out. So the instant before which no wait ends is kept, and
//! compared with the clock's.

use std::hash::Hash;
use std::time::Instant;

use super::WaitQueue;
use crate::admit::nanos::{NEVER, Nanos};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// The time, if [`advance`](Self::advance) may have something to do. Reads the clock only if a wait can end, or an item
    /// be promoted.
    #[inline]
    pub(crate) fn due(&mut self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        let (not_before, may_promote) = (self.not_before(), self.next_promotion() < NEVER);
        if not_before.is_none() && !may_promote {
            return None;
        }
        let now = now();
        let may_expire = not_before.is_some_and(|end| end <= now);
        (may_expire || may_promote).then_some(now)
    }

    /// Returns a time before which no wait ends; `NEVER` if none ends. It may be earlier than all ends.
    #[inline]
    pub(crate) fn first_end(&self) -> Nanos {
        self.common.timeouts.not_before()
    }

    /// An instant before which no wait ends; `None` if none ends. It may be earlier than all ends, but is later than the
    /// latest [`advance`](Self::advance).
    #[inline]
    fn not_before(&mut self) -> Option<Instant> {
        let not_before = self.common.timeouts.not_before();
        // With `max_wait` alone it changes once in each `max_wait`.
        if self.not_before.0 != not_before {
            self.not_before = (not_before, self.common.base.clock.epoch.instant(not_before));
        }
        self.not_before.1
    }
}
