//! How long a newcomer would have to wait, by the work ahead of it on the pools that could serve it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::FullRoom;
use crate::admit::overload::wait::{PoolBacklog, expected_wait};
use crate::admit::room::{ExpectedWait, Room, all_pools, is_free, slot_state, slots};
use crate::admit::room_base::{PredictedWait, counted};
use crate::admit::wait_queue::Newcomer;
use crate::admit::waiters::WaitLimits;
use crate::admit::{Capacity, PoolId, RejectReason, SlotState, Ticket};

impl<C: Capacity, W> FullRoom<C, W> {
    /// Counts the time up to now in which requests wait for a slot of `pool`.
    pub(super) fn observe(&mut self, capacity: &C, pool: PoolId) {
        let is_idle = self.queue.lanes().is_idle(pool);
        let base = self.queue.base_mut();
        let load = base.overload.pool_mut(pool);
        let state = match C::MAKES_SLOTS {
            true => slot_state(capacity, pool),
            false => SlotState::Made,
        };
        // Asked before it is set: the time since the last call counts only if the slots were there in it.
        let was_made = state == SlotState::Made && load.is_made_since(base.now);
        load.observe(base.now, slots(capacity, pool), is_idle || !was_made);
        load.set_slot_state(base.now, state);
    }

    /// As [`observe`](Self::observe), for all pools that could serve a lane.
    pub(super) fn observe_lane(&mut self, capacity: &C, lane: u32) {
        // Cloned, as the set is shared and the measurements are changed on the way.
        for &pool in self.queue.lanes().pools(lane).clone().iter() {
            self.observe(capacity, pool);
        }
    }

    /// Tells the measurements which pools are in service: nothing is expected of the others.
    pub(super) fn observe_pools_in_service(&mut self, capacity: &C) {
        // A panic of the capacity must not reach the requests that wait.
        if let Ok(Some(pools)) = catch_unwind(AssertUnwindSafe(|| capacity.all_pools())) {
            let base = self.queue.base_mut();
            base.overload.set_in_service(&pools, base.now);
        }
    }

    /// As [`observe`](Self::observe), for all pools for which requests wait.
    pub(super) fn observe_waiters(&mut self, capacity: &C) {
        let lanes: Vec<u32> = self.queue.lanes().one_of_each_group().collect();
        for lane in lanes {
            self.observe_lane(capacity, lane);
        }
    }

    /// The wait of a newcomer to `lane`, in seconds; 0 if that is not known. Or the reason why it may not wait.
    pub(super) fn predict(
        &mut self,
        capacity: &C,
        ticket: &Ticket,
        limits: WaitLimits,
        lane: u32,
    ) -> Result<f32, RejectReason<C::Unservable>> {
        let now = self.base().now;
        let counted = self.counted(limits, lane);
        if let Some(why) = self.base().refusal(ticket, counted, now) {
            return Err(why);
        }
        // The backlog of others is not what it waits for.
        let is_limited = self.queue.waits_for_its_tenant(&ticket.tenant, lane);
        if is_limited || !self.base().is_predicted(ticket) {
            return Ok(0.0);
        }
        let lanes = self.queue.lanes();
        let Some(&pool) = lanes.pools(lane).first() else {
            return Ok(0.0);
        };
        let newcomer = self.queue.newcomer(ticket, limits, self.base().now);
        let backlog = lanes.backlog(self.waiters(), newcomer, lane, &self.base().config);
        let ahead = backlog.ahead;
        let wait = PredictedWait {
            pool,
            lane_hash: self.hash_of_lane(lane),
            is_first: ahead == 0,
            flows: backlog.flows,
            leased: self.base().leases_used(capacity.leased()),
            seconds: self.expected_wait(ahead, newcomer, lane),
        };
        Ok(self.base_mut().admit(ticket, counted, wait)? as f32)
    }

    /// Returns what bounds the wait of a request that was made to wait before: the time in which slots of its lane are made
    /// does not count.
    fn counted(&self, limits: WaitLimits, lane: u32) -> WaitLimits {
        if !C::MAKES_SLOTS {
            return limits;
        }
        let (base, lanes) = (self.base(), self.queue.lanes());
        let slots = base.overload.slots_of(lanes.pools(lane));
        counted(limits, base.now, slots, base.now)
    }

    /// Identifies a lane in the service times.
    pub(super) fn hash_of_lane(&self, lane: u32) -> u32 {
        match C::SINGLE_LANE {
            // As in the plain room.
            true => 0,
            false => self.queue.lanes().hash(lane),
        }
    }

    /// The longest wait of a newcomer of this level, behind all waiters of the level and above, over the slots for which
    /// requests wait now.
    pub(super) fn longest_wait(&self, capacity: &C, level: u8) -> Option<ExpectedWait> {
        let (base, lanes) = (self.base(), self.queue.lanes());
        let kept = base.kept_above(level);
        let has_free = |pools: &[PoolId]| pools.iter().any(|&pool| is_free(capacity, pool, kept));
        if self.queue.is_empty() {
            let pools = all_pools(capacity);
            let &pool = pools.first()?;
            if has_free(&pools) {
                return Some(ExpectedWait::none(pool));
            }
            // Every slot is busy and no request waits: the next one that comes back is for this request.
            let seconds = base.overload.total_per_second()?.recip();
            return Some(ExpectedWait { pool, seconds });
        }
        let newcomer = Newcomer::after_all(level, base.now);
        let waits = lanes.one_of_each_group().filter_map(|lane| {
            let pools = lanes.pools(lane);
            let &pool = pools.first()?;
            let ahead = lanes.ahead_in_group(lane, newcomer);
            if ahead == 0 && has_free(pools) {
                return Some(ExpectedWait::none(pool));
            }
            let seconds = self.expected_wait(ahead, newcomer, lane)?;
            Some(ExpectedWait { pool, seconds })
        });
        waits.max_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    /// The wait of a newcomer with `ahead` waiters of its group before it; `None` while one of the pools is not measured.
    fn expected_wait(&self, ahead: usize, newcomer: Newcomer<'_>, lane: u32) -> Option<f64> {
        let (base, lanes) = (self.base(), self.queue.lanes());
        let pools = lanes.pools(lane).iter().map(|&pool| {
            Some(PoolBacklog {
                per_second: base.overload.per_second(pool)?,
                others: lanes.ahead_of_others(pool, lane, newcomer),
            })
        });
        let mut pools: Vec<_> = pools.collect::<Option<_>>()?;
        // It gets the slot after those of the waiters before it.
        Some(expected_wait((ahead + 1) as f64, &mut pools))
    }
}
