//! What a room says of each of its levels.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::WaitingRoom;
use crate::admit::room::{ExpectedWait, all_pools, usage};
use crate::admit::room_base::RoomBase;
use crate::admit::{Capacity, LevelStatus, Priority, Tenant};

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// The state of each level at `now`, highest first.
    #[must_use]
    pub fn levels(&mut self, capacity: &C, now: Instant) -> Vec<LevelStatus> {
        let base = self.room_mut().base_mut();
        // The time only: a report ends no wait.
        base.set_now(now);
        // At most 32.
        let levels = 0..base.config.levels.count() as u8;
        levels.map(|level| self.level(capacity, level)).collect()
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
        let base = room.base_mut();
        let (reserved, lent) = base.reserved_and_lent(capacity, level);
        LevelStatus {
            name: base.config.levels.name(Priority(level)).to_owned(),
            waiting,
            stats: base.stats_by_level[usize::from(level)],
            estimated_wait: wait.and_then(|wait| base.corrected(level, wait)),
            target_wait: base.target_at(level),
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

    /// The target of callers that name no deadline.
    fn target_at(&self, level: u8) -> Option<Duration> {
        let learned = self.overload.patience.of(&Tenant::NONE, self.now);
        let bound = self
            .config
            .max_wait
            .map_or(f64::INFINITY, |max| max.as_secs_f64());
        let patience = learned.map_or(bound, |learned| learned.min(bound));
        let target = self.overload.target_at(level, patience, &self.config);
        Duration::try_from_secs_f64(target).ok()
    }
}
