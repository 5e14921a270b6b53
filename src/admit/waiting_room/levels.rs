//! What a room says of each of its levels.

use std::time::{Duration, Instant};

use super::WaitingRoom;
use super::predict::ExpectedWait;
use crate::admit::room_base::RoomBase;
use crate::admit::{Capacity, LevelStatus, PoolId, Priority, ask};

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// The state of each level at `now`, highest first.
    #[must_use]
    pub fn levels(&mut self, capacity: &C, now: Instant) -> Vec<LevelStatus> {
        self.observe_now(capacity, now);
        // At most 32.
        let levels = 0..self.base().config.levels.count() as u8;
        levels.map(|level| self.level(capacity, level)).collect()
    }

    /// Returns the time that the next arrival would probably wait: 0 if none waits and a slot is free, else by the departure
    /// rate over the slots of now. `None` until that was measured.
    pub(crate) fn next_wait(&mut self, capacity: &C, now: Instant) -> Option<Duration> {
        // The level for which all others keep their slots.
        let lowest = self.base().config.levels.count() as u8 - 1;
        if self.is_empty() && ask::has_free_slot(capacity, self.base().kept_above(lowest)) {
            return Some(Duration::ZERO);
        }
        self.wait_behind(capacity, self.len(), now)
    }

    /// Returns the time until the request behind `ahead` others has a slot, likewise.
    pub(crate) fn wait_behind(
        &mut self,
        capacity: &C,
        ahead: usize,
        now: Instant,
    ) -> Option<Duration> {
        self.observe_now(capacity, now);
        self.estimated_wait(ahead + 1)
    }

    /// Sets the time and the numbers of slots for a report.
    fn observe_now(&mut self, capacity: &C, now: Instant) {
        // The time only: a report ends no wait.
        self.base_mut().clock.set_now(now);
        self.observe_new_limits(capacity);
    }

    /// Adds rejections by a full room that were counted elsewhere. A level that there is not stands for all.
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
    /// How many slots are kept for a level, and how many of them are lent.
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

    /// A predicted wait, corrected by how past predictions came out. `None` if it is longer than a duration can be.
    fn corrected(&self, level: u8, wait: ExpectedWait) -> Option<Duration> {
        let correction = self
            .admission
            .overload
            .correction(wait.pool, level, wait.seconds);
        Duration::try_from_secs_f64(wait.seconds * correction).ok()
    }

    /// Returns the target at a pool of callers that name no deadline.
    fn target_at(&self, pool: PoolId, level: u8) -> Option<Duration> {
        let target = self.admission.overload.target_at(pool, level, &self.config);
        Duration::try_from_secs_f64(target).ok()
    }
}
