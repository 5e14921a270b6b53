//! Reports about the levels of a room and the heads of its lanes.

use std::time::{Duration, Instant};

use super::WaitingRoom;
use super::predict::ExpectedWait;
use crate::admit::room_base::RoomBase;
use crate::admit::{
    Capacity, LevelStatus, PoolId, PoolSet, Priority, SlotState, Tenant, WaiterId, ask,
};

/// The waiter of a lane that goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneHead<L> {
    /// The lane.
    pub lane: L,
    /// The level in which the waiter waits, which is the level of its ticket or a higher one after a promotion.
    pub level: Priority,
    /// The instant of the waiter's arrival.
    pub arrival: Instant,
}

/// A waiter of a room or a gate, as a report shows it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct WaitingRequest<'a, D> {
    /// The level in which the waiter waits, which is the level of its ticket or a higher one after a promotion.
    pub level: Priority,
    /// The tenant of the waiter's ticket.
    pub tenant: &'a Tenant,
    /// The slots that the waiter needs.
    pub demand: &'a D,
    /// The time since the waiter's arrival.
    pub age: Duration,
}

/// Slots that are being started.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Starting {
    /// The share of the start that is done, from 0 to 1, if it is known.
    pub(crate) progress: Option<f32>,
}

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

    /// Returns the head of each lane that has waiters, in arbitrary order.
    #[must_use]
    pub fn lane_heads(&self) -> Vec<LaneHead<C::Lane>> {
        let epoch = self.base().clock.epoch;
        let heads = self.queue.heads().into_iter();
        let heads = heads.map(|(lane, meta)| LaneHead {
            lane,
            level: Priority(meta.level),
            arrival: epoch.instant(meta.limits.arrival).unwrap_or(epoch.0),
        });
        heads.collect()
    }

    /// Returns the number of waiters for each set of pools that can serve them. A set may occur once for each
    /// discipline. Waiters of a tenant that is at its limit are not counted.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<(PoolSet, usize)> {
        self.queue.waiting_for()
    }

    /// Returns the progress of a start, while the waiter needs slots that are being started. Returns `None` if any of
    /// its pools is ready, or if all of them are stopped.
    pub(crate) fn starting(&self, capacity: &C, id: WaiterId) -> Option<Starting> {
        let mut starting = None;
        for &pool in self.queue.pools_of(id.idx) {
            match ask::slot_state(capacity, pool) {
                SlotState::Ready => return None,
                SlotState::Stopped => {}
                SlotState::Starting { progress } => {
                    // The first pool's progress stands for all.
                    starting.get_or_insert(Starting { progress });
                }
            }
        }
        starting
    }

    /// Returns `true` if the head of a lane may have changed since the last call.
    pub(crate) fn take_lane_heads_changed(&mut self) -> bool {
        self.queue.take_heads_changed()
    }

    /// Calls `visit` for each waiter, in arbitrary order. Takes O(n) time.
    pub fn for_each_waiter(
        &self,
        now: Instant,
        mut visit: impl FnMut(WaitingRequest<'_, C::Demand>),
    ) {
        let waiters = self.waiters();
        let now = self.base().clock.epoch.nanos(now);
        for (idx, meta) in waiters.waiting() {
            visit(WaitingRequest {
                level: Priority(meta.level),
                tenant: meta.tenant(),
                demand: &waiters.payload(idx).demand,
                age: Duration::from_nanos(now.saturating_sub(meta.limits.arrival)),
            });
        }
    }

    fn level(&mut self, capacity: &C, level: u8) -> LevelStatus {
        let common = &self.queue.common;
        let waiting = common.by_level.count(level);
        let oldest = common.by_level.oldest_of(&common.waiters, level);
        let oldest = oldest.map(|idx| common.waiters.meta(idx).limits.arrival);
        let wait = self.longest_wait(capacity, level);
        let pool = wait.map_or(PoolId(0), |wait| wait.pool);
        let base = self.base_mut();
        let reserved = base.reserved(capacity, level);
        LevelStatus {
            name: base.config.levels.name(Priority(level)).to_owned(),
            waiting,
            oldest: oldest
                .map(|arrival| Duration::from_nanos(base.clock.now.saturating_sub(arrival))),
            stats: base.counters.by_level[usize::from(level)],
            estimated_wait: wait.and_then(|wait| base.corrected(level, wait)),
            target_wait: base.target_at(pool, level),
            reserved,
        }
    }
}

impl RoomBase {
    /// Returns the number of slots that are reserved for a level.
    fn reserved<C: Capacity>(&self, capacity: &C, level: u8) -> usize {
        if self.reserves.is_empty() {
            return 0;
        }
        let pools = ask::all_pools(capacity);
        let limits = pools.iter().map(|&pool| ask::usage(capacity, pool).0);
        limits
            .map(|limit| self.reserves.of_level(level.into(), limit))
            .sum()
    }

    /// Returns a predicted wait, corrected by the outcome of past predictions. `None` if it exceeds the range of a
    /// duration.
    fn corrected(&self, level: u8, wait: ExpectedWait) -> Option<Duration> {
        let correction = self.overload.correction(wait.pool, level, wait.seconds);
        Duration::try_from_secs_f64(wait.seconds * correction).ok()
    }

    /// Returns the target at a pool for callers without a deadline. `None` without a target.
    fn target_at(&self, pool: PoolId, level: u8) -> Option<Duration> {
        let target = self.overload.target_at(pool, level, &self.config);
        Duration::try_from_secs_f64(target).ok()
    }
}
