//! Reports about each level of a room.

use std::time::{Duration, Instant};

use super::WaitingRoom;
use super::predict::ExpectedWait;
use crate::admit::room_base::RoomBase;
use crate::admit::{Capacity, LevelStatus, PoolId, Priority, ask};

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Returns the state of each level at `now`, highest first.
    #[must_use]
    pub fn levels(&mut self, capacity: &C, now: Instant) -> Vec<LevelStatus> {
        self.observe_now(capacity, now);
        // The cast is lossless, because there are at most 32 levels.
        let levels = 0..self.base().config.levels.count() as u8;
        levels.map(|level| self.level(capacity, level)).collect()
    }

    /// Returns the time that the next arrival would probably wait. It is 0 if the room is empty and a slot is free, and
    /// else follows from the departure rate with the present slots. `None` until this rate was measured.
    pub(crate) fn next_wait(&mut self, capacity: &C, now: Instant) -> Option<Duration> {
        // The lowest level has to leave the reserved slots of all other levels free.
        let lowest = self.base().config.levels.count() as u8 - 1;
        if self.is_empty() && ask::has_free_slot(capacity, self.base().kept_above(lowest)) {
            return Some(Duration::ZERO);
        }
        self.wait_behind(capacity, self.len(), now)
    }

    /// Returns the time until the request behind `ahead` others probably has a slot. `None` until the departure rate
    /// was measured.
    pub(crate) fn wait_behind(
        &mut self,
        capacity: &C,
        ahead: usize,
        now: Instant,
    ) -> Option<Duration> {
        self.observe_now(capacity, now);
        self.estimated_wait(ahead + 1)
    }

    /// Updates the time and the numbers of slots for a report.
    fn observe_now(&mut self, capacity: &C, now: Instant) {
        // Only the time is set, because a report must not end waits.
        self.base_mut().clock.set_now(now);
        self.observe_new_limits(capacity);
    }

    /// Adds rejections by a full room that were counted elsewhere. An unknown `level` adds them to the room's total
    /// only.
    pub(crate) fn count_full(&mut self, level: usize, count: u64) {
        let base = self.base_mut();
        base.counters.stats.full += count;
        if let Some(level) = base.counters.by_level.get_mut(level) {
            level.full += count;
        }
    }

    fn level(&mut self, capacity: &C, level: u8) -> LevelStatus {
        let waiting = self.queue.common.by_level.count(level);
        let wait = self.longest_wait(capacity, level);
        let pool = wait.map_or(PoolId(0), |wait| wait.pool);
        let base = self.base_mut();
        let (reserved, lent) = base.reserved_and_lent(capacity, level);
        LevelStatus {
            name: base.config.levels.name(Priority(level)).to_owned(),
            waiting,
            stats: base.counters.by_level[usize::from(level)],
            estimated_wait: wait.and_then(|wait| base.corrected(level, wait)),
            target_wait: base.target_at(pool, level),
            reserved,
            lent,
        }
    }
}

impl RoomBase {
    /// Returns the number of slots that are reserved for a level, and the number of them that are lent.
    fn reserved_and_lent<C: Capacity>(&mut self, capacity: &C, level: u8) -> (usize, usize) {
        if self.reserves.is_empty() {
            return (0, 0);
        }
        let mut sum = (0, 0);
        for &pool in ask::all_pools(capacity).iter() {
            let (reserved, lent) =
                self.reserves
                    .status(level.into(), pool, ask::usage(capacity, pool));
            sum = (sum.0 + reserved, sum.1 + lent);
        }
        sum
    }

    /// Returns a predicted wait, corrected by the outcome of past predictions. `None` if it exceeds the range of a
    /// duration.
    fn corrected(&self, level: u8, wait: ExpectedWait) -> Option<Duration> {
        let correction = self
            .admission
            .overload
            .correction(wait.pool, level, wait.seconds);
        Duration::try_from_secs_f64(wait.seconds * correction).ok()
    }

    /// Returns the target at a pool for callers without a deadline. `None` without a target.
    fn target_at(&self, pool: PoolId, level: u8) -> Option<Duration> {
        let target = self.admission.overload.target_at(pool, level, &self.config);
        Duration::try_from_secs_f64(target).ok()
    }
}
