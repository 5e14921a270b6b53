//! Aging: a waiter is promoted by one level for each interval (`promote_after`) that it has waited.

use std::hash::Hash;

use super::WaitQueue;
use crate::admit::nanos::{NEVER, Nanos, span};
use crate::admit::waiters::Waiters;
use crate::admit::{Priority, WaitingRoomConfig};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// The level of a request with this priority and arrival, promotions by `now` included.
    #[inline]
    pub(super) fn level_of(&self, priority: Priority, arrival: Nanos, now: Nanos) -> u8 {
        let Priority(level) = self.base.config.levels.clamp(priority);
        let promotions = interval(&self.base.config)
            .map_or(0, |interval| now.saturating_sub(arrival) / interval);
        // Level 0 is the highest: saturates there.
        level.saturating_sub(u8::try_from(promotions).unwrap_or(u8::MAX))
    }

    /// Promotes all waiters that are due by `now`. Ends because each is promoted at most to level 0.
    #[cold]
    pub(super) fn promote(&mut self, now: Nanos) {
        while let Some(&(due, _, idx)) = self.promotions.first()
            && due <= now
        {
            let meta = self.waiters.meta_mut(idx);
            let old = meta.level;
            // Above 0: `next_promotion` is `None` at level 0.
            meta.level -= 1;
            // `meta` has the new level: the old one is named where the waiter leaves.
            self.leave_lane(idx, old, false);
            // Takes this promotion out; `link_level` enters the next one.
            self.unlink_level(idx, old);
            // Its tenant's flow at the new level is another one.
            self.enter_lane(idx, None);
            self.link_level(idx);
            self.base.reserves.on_promoted();
        }
    }

    /// When the next waiter is promoted; `NEVER` if none is.
    pub(crate) fn next_promotion(&self) -> Nanos {
        self.promotions.first().map_or(NEVER, |&(due, ..)| due)
    }
}

/// When a waiter will be promoted, its sequence number, and its index.
pub(super) type Promotion = (Nanos, u64, u32);

/// The next promotion of a waiter at this level; `None` at level 0, and without aging.
#[inline]
pub(super) fn next_promotion<T>(
    waiters: &Waiters<T>,
    config: &WaitingRoomConfig,
    idx: u32,
    level: u8,
) -> Option<Promotion> {
    let interval = interval(config)?;
    let meta = waiters.meta(idx);
    // One for each promotion so far, and one for the next.
    // Does not overflow: a waiter's level is never below its ticket's.
    let intervals = Nanos::from(meta.priority - level) + 1;
    let due = meta
        .limits
        .arrival
        .saturating_add(interval.saturating_mul(intervals));
    (level > 0 && due < NEVER).then_some((due, meta.seq, idx))
}

/// The interval between two promotions, in nanoseconds; `None` without aging.
#[inline]
fn interval(config: &WaitingRoomConfig) -> Option<Nanos> {
    config
        .promote_after
        .map(span)
        .filter(|&interval| interval > 0)
}
