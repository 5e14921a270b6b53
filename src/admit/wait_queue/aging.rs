//! Aging, which promotes a waiter by one level for each interval (`promote_after`) that it has waited.

use std::hash::Hash;

use super::Common;
use super::lane_order::LaneOrder;
use crate::admit::nanos::{NEVER, Nanos, span};
use crate::admit::room_base::RoomBase;
use crate::admit::waiters::{WaiterMeta, Waiters};
use crate::admit::{Priority, WaitingRoomConfig};

impl RoomBase {
    /// Returns the level of a request with this priority and arrival, promotions by `now` included.
    #[inline]
    pub(crate) fn level_of(&self, priority: Priority, arrival: Nanos, now: Nanos) -> u8 {
        let Priority(level) = self.config.levels.clamp(priority);
        let promotions =
            interval(&self.config).map_or(0, |interval| now.saturating_sub(arrival) / interval);
        // Level 0 is the highest, so the difference saturates there.
        level.saturating_sub(u8::try_from(promotions).unwrap_or(u8::MAX))
    }
}

impl<L: Clone + Eq + Hash> LaneOrder<L> {
    /// Promotes all waiters that are due by `now`, and returns `true` if there was one. This ends because each waiter is
    /// promoted at most to level 0.
    #[cold]
    pub(super) fn promote<T>(&mut self, common: &mut Common<T>, now: Nanos) -> bool {
        let mut has_promoted = false;
        while let Some(&(due, _, idx)) = self.promotions.first()
            && due <= now
        {
            let WaiterMeta { lane, level, .. } = *common.waiters.meta(idx);
            self.unlink(common, idx, false);
            // The level is above 0, because `next_promotion` returns `None` at level 0. The tenant has another flow at
            // the new level, so the state of the old flow does not move along.
            self.link_at(common, idx, (lane, level - 1), None);
            common.base.reserves.on_promoted();
            has_promoted = true;
        }
        has_promoted
    }

    /// Returns the time at which the next waiter is promoted, or `NEVER` if all of them keep their levels.
    pub(super) fn next_promotion(&self) -> Nanos {
        self.promotions.first().map_or(NEVER, |&(due, ..)| due)
    }
}

/// The time at which a waiter will be promoted, with the waiter's sequence number and index.
pub(super) type Promotion = (Nanos, u64, u32);

/// Returns the next promotion of a waiter, or `None` at level 0 and without aging.
#[inline]
pub(super) fn next_promotion<T>(
    waiters: &Waiters<T>,
    config: &WaitingRoomConfig,
    idx: u32,
) -> Option<Promotion> {
    let interval = interval(config)?;
    let meta = waiters.meta(idx);
    // There is one interval for each promotion so far, and one for the next. The subtraction cannot underflow, because
    // a promotion only lowers a waiter's level number below that of its ticket.
    let intervals = Nanos::from(meta.priority - meta.level) + 1;
    let due = meta
        .limits
        .arrival
        .saturating_add(interval.saturating_mul(intervals));
    (meta.level > 0 && due < NEVER).then_some((due, meta.seq, idx))
}

/// Returns the interval between two promotions in nanoseconds, or `None` without aging.
#[inline]
fn interval(config: &WaitingRoomConfig) -> Option<Nanos> {
    config
        .promote_after
        .map(span)
        .filter(|&interval| interval > 0)
}
