//! Aging: a waiter is promoted by one level for each interval (`promote_after`) that it has waited.

use std::hash::Hash;

use super::Common;
use super::lane_order::LaneOrder;
use crate::admit::nanos::{NEVER, Nanos, span};
use crate::admit::room_base::RoomBase;
use crate::admit::waiters::Waiters;
use crate::admit::{Priority, WaitingRoomConfig};

impl RoomBase {
    /// Returns the level of a request with this priority and arrival, promotions by `now` included.
    #[inline]
    pub(crate) fn level_of(&self, priority: Priority, arrival: Nanos, now: Nanos) -> u8 {
        let Priority(level) = self.config.levels.clamp(priority);
        let promotions =
            interval(&self.config).map_or(0, |interval| now.saturating_sub(arrival) / interval);
        // Level 0 is the highest: saturates there.
        level.saturating_sub(u8::try_from(promotions).unwrap_or(u8::MAX))
    }
}

impl<L: Clone + Eq + Hash> LaneOrder<L> {
    /// Promotes all waiters that are due by `now`. Ends because each is promoted at most to level 0.
    #[cold]
    pub(super) fn promote<T>(&mut self, common: &mut Common<T>, now: Nanos) {
        while let Some(&(due, _, idx)) = self.promotions.first()
            && due <= now
        {
            let meta = common.waiters.meta_mut(idx);
            let old = meta.level;
            // Above 0: `next_promotion` is `None` at level 0.
            meta.level -= 1;
            // `meta` has the new level: the old one is named where the waiter leaves.
            self.change_level(common, idx, old);
            common.base.reserves.on_promoted();
        }
    }

    /// Returns the time at which the next waiter is promoted; `NEVER` if none is.
    pub(super) fn next_promotion(&self) -> Nanos {
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
