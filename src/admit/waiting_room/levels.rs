//! What a room says of each of its levels.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::WaitingRoom;
use crate::admit::room::{ExpectedWait, all_pools, has_free_slot, usage};
use crate::admit::room_base::RoomBase;
use crate::admit::{Capacity, LevelStatus, PoolId, Priority};

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// The state of each level at `now`, highest first.
    #[must_use]
    pub fn levels(&mut self, capacity: &C, now: Instant) -> Vec<LevelStatus> {
        self.observe(capacity, now);
        // At most 32.
        let levels = 0..self.base().config.levels.count() as u8;
        levels.map(|level| self.level(capacity, level)).collect()
    }

    /// Returns the time that the next arrival would probably wait: 0 if none waits and a slot is free, else by the departure
    /// rate over the slots of now. `None` until that was measured.
    pub(crate) fn next_wait(&mut self, capacity: &C, now: Instant) -> Option<Duration> {
        // The level for which all others keep their slots.
        let lowest = self.base().config.levels.count() as u8 - 1;
        if self.is_empty() && has_free_slot(capacity, self.base().kept_above(lowest)) {
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
        self.observe(capacity, now);
        self.estimated_wait(ahead + 1)
    }

    /// Sets the time and the numbers of slots for a report.
    fn observe(&mut self, capacity: &C, now: Instant) {
        let room = self.room_mut();
        // The time only: a report ends no wait.
        room.base_mut().set_now(now);
        room.observe_new_limits(capacity);
    }

    /// Adds rejections by a full room that were counted elsewhere. A level that there is not stands for all.
    pub(crate) fn count_full(&mut self, level: usize, count: u64) {
        let base = self.room_mut().base_mut();
        base.stats.full += count;
        if let Some(level) = base.stats_by_level.get_mut(level) {
            level.full += count;
        }
    }

    fn level(&mut self, capacity: &C, level: u8) -> LevelStatus {
        let room = self.room_mut();
        let waiting = room.waiting_at(level);
        let wait = room.expected_wait_at(capacity, level);
        let pool = wait.map_or(PoolId(0), |wait| wait.pool);
        let base = room.base_mut();
        let (reserved, lent) = base.reserved_and_lent(capacity, level);
        LevelStatus {
            name: base.config.levels.name(Priority(level)).to_owned(),
            waiting,
            stats: base.stats_by_level[usize::from(level)],
            estimated_wait: wait.and_then(|wait| base.corrected(level, wait)),
            target_wait: base.target_at(pool, level),
            reserved,
            lent,
        }
    }
}

impl RoomBase {
    /// A request of this level got a slot without waiting, where slots may be lent.
    pub(super) fn on_leased<C: Capacity>(&mut self, capacity: &C, level: u8, lease: &C::Lease) {
        // User code, which has answered once; if it panics now, only a report is wrong.
        if let Ok(pool) = catch_unwind(AssertUnwindSafe(|| capacity.pool(lease))) {
            self.reserves
                .on_leased(level, pool, usage(capacity, pool), self.now);
        }
    }

    /// How many slots are kept for a level, and how many of them are lent.
    fn reserved_and_lent<C: Capacity>(&mut self, capacity: &C, level: u8) -> (usize, usize) {
        if self.reserves.is_empty() {
            return (0, 0);
        }
        let mut sum = (0, 0);
        for &pool in all_pools(capacity).iter() {
            let (reserved, lent) = self
                .reserves
                .status(level.into(), pool, usage(capacity, pool));
            sum = (sum.0 + reserved, sum.1 + lent);
        }
        sum
    }

    /// A predicted wait, corrected by how past predictions came out. `None` if it is longer than a duration can be.
    fn corrected(&self, level: u8, wait: ExpectedWait) -> Option<Duration> {
        let correction = self.overload.correction(wait.pool, level, wait.seconds);
        Duration::try_from_secs_f64(wait.seconds * correction).ok()
    }

    /// Returns the target at a pool of callers that name no deadline.
    fn target_at(&self, pool: PoolId, level: u8) -> Option<Duration> {
        let target = self.overload.target_at(pool, level, &self.config);
        Duration::try_from_secs_f64(target).ok()
    }
}
