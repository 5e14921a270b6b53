//! Aging: a waiter is promoted by one level for each interval (`promote_after`) that it has waited.

use std::hash::Hash;

use super::WaitQueue;
use crate::admit::nanos::{NEVER, Nanos, span};
use crate::admit::waiters::Waiters;
use crate::admit::{Priority, WaitingRoomConfig};

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// The level of a request with this priority and arrival, promotions by `now` included.
    pub(super) fn level_of(&self, priority: Priority, arrival: Nanos, now: Nanos) -> u8 {
        let Priority(level) = self.base.config.levels.clamp(priority);
        let promotions = interval(&self.base.config)
            .map_or(0, |interval| now.saturating_sub(arrival) / interval);
        // Level 0 is the highest: saturates there.
        level.saturating_sub(u8::try_from(promotions).unwrap_or(u8::MAX))
    }

    /// Promotes all waiters that are due by `now`. Ends because each is promoted at most to level 0.
    pub(super) fn promote(&mut self, now: Nanos) {
        while let Some(((due, _), idx)) = self.promotions.first()
            && due <= now
        {
            let meta = self.waiters.meta_mut(idx);
            let old = meta.level;
            // Above 0: `next_promotion` is `None` at level 0. First: the queues find by it that the entry is dead.
            meta.level -= 1;
            self.lanes.remove(&self.waiters, idx, old);
            self.unlink_level(idx, old);
            // Its tenant's flow at the new level is another one.
            self.lanes
                .push(&mut self.waiters, idx, None, &self.base.config);
            self.link_level(idx);
        }
    }

    /// Links a waiter among those that will be promoted, if it will be.
    pub(super) fn link_promotion(&mut self, idx: u32) {
        let meta = self.waiters.meta(idx);
        if let Some(due) = next_promotion(&self.waiters, &self.base.config, idx, meta.level) {
            self.promotions.push((due, meta.seq), idx);
        }
    }

    /// Undoes [`link_promotion`](Self::link_promotion) for a waiter that waits no more, or at another level now.
    pub(super) fn unlink_promotion(&mut self, idx: u32, level: u8) {
        let (waiters, config) = (&self.waiters, &self.base.config);
        if let Some(due) = next_promotion(waiters, config, idx, level) {
            let seq = waiters.meta(idx).seq;
            // An entry is alive if it is of the waiter's present level; an older one has another `due`.
            self.promotions.remove((due, seq), |&(due, seq), idx| {
                let level = waiters.level_if_waiting(idx, seq);
                level.is_some_and(|level| next_promotion(waiters, config, idx, level) == Some(due))
            });
        }
    }
}

/// The next promotion of a waiter at this level; `None` at level 0, and without aging.
fn next_promotion<T>(
    waiters: &Waiters<T>,
    config: &WaitingRoomConfig,
    idx: u32,
    level: u8,
) -> Option<Nanos> {
    let interval = interval(config)?;
    let meta = waiters.meta(idx);
    // Does not overflow: a waiter's level is never below its ticket's.
    let intervals = Nanos::from(meta.priority - level) + 1;
    let due = meta
        .limits
        .arrival
        .saturating_add(interval.saturating_mul(intervals));
    (level > 0 && due < NEVER).then_some(due)
}

/// The interval between two promotions, in nanoseconds; `None` without aging.
fn interval(config: &WaitingRoomConfig) -> Option<Nanos> {
    config
        .promote_after
        .map(span)
        .filter(|&interval| interval > 0)
}
