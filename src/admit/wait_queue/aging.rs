//! Aging: a waiter is promoted by one level for each interval that it has waited.

use std::hash::Hash;

use super::super::nanos::{NEVER, Nanos, span};
use super::super::waiters::Waiters;
use super::super::{Priority, WaitingRoomConfig};
use super::WaitQueue;

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// The level of a request of this priority that arrived then, promotions by `now` included.
    pub(super) fn level_of(&self, priority: Priority, arrival: Nanos, now: Nanos) -> u8 {
        let Priority(level) = self.base.config.levels.clamp(priority);
        let promotions = interval(&self.base.config)
            .map_or(0, |interval| now.saturating_sub(arrival) / interval);
        level.saturating_sub(u8::try_from(promotions).unwrap_or(u8::MAX))
    }

    /// Promotes all waiters whose time has come by `now`. Ends because each is promoted at most to the highest level.
    pub(super) fn promote(&mut self, now: Nanos) {
        while let Some(((due, _), idx)) = self.promotions.first()
            && due <= now
        {
            let meta = self.waiters.meta_mut(idx);
            let old = meta.level;
            meta.level -= 1;
            self.lanes.remove(&self.waiters, idx, old);
            self.unlink_level(idx, old);
            self.lanes
                .push(&mut self.waiters, idx, None, &self.base.config);
            self.link_level(idx);
        }
    }

    /// Remembers when the waiter is to be promoted next, if ever.
    pub(super) fn link_promotion(&mut self, idx: u32) {
        let meta = self.waiters.meta(idx);
        if let Some(due) = next_promotion(&self.waiters, &self.base.config, idx, meta.level) {
            self.promotions.push((due, meta.seq), idx);
        }
    }

    /// Forgets it. The waiter does not wait at this level any more.
    pub(super) fn unlink_promotion(&mut self, idx: u32, level: u8) {
        let (waiters, config) = (&self.waiters, &self.base.config);
        if let Some(due) = next_promotion(waiters, config, idx, level) {
            let seq = waiters.meta(idx).seq;
            self.promotions.remove((due, seq), |&(due, seq), idx| {
                let level = waiters.level_if_waiting(idx, seq);
                level.is_some_and(|level| next_promotion(waiters, config, idx, level) == Some(due))
            });
        }
    }
}

/// When a waiter of this level is promoted next; `None` on the highest level, and without aging.
fn next_promotion<T>(
    waiters: &Waiters<T>,
    config: &WaitingRoomConfig,
    idx: u32,
    level: u8,
) -> Option<Nanos> {
    let interval = interval(config)?;
    let meta = waiters.meta(idx);
    let intervals = Nanos::from(meta.priority - level) + 1;
    let due = meta
        .limits
        .arrival
        .saturating_add(interval.saturating_mul(intervals));
    (level > 0 && due < NEVER).then_some(due)
}

fn interval(config: &WaitingRoomConfig) -> Option<Nanos> {
    config
        .promote_after
        .map(span)
        .filter(|&interval| interval > 0)
}
