//! The prediction of a newcomer's wait, from the work ahead of it on the pools that could serve it.

use super::WaitingRoom;
use crate::admit::nanos::{NEVER, Nanos};
use crate::admit::overload::{Arriving, PoolBacklog, expected_wait};
use crate::admit::room_base::counted;
use crate::admit::wait_queue::Newcomer;
use crate::admit::wait_queue::lanes::Backlog;
use crate::admit::waiters::WaitLimits;
use crate::admit::{Capacity, PoolId, Priority, RejectReason, SlotState, Ticket, ask};

/// The wait of an arrival that follows from the work ahead of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpectedWait {
    /// The pool that provides the corrections of the prediction.
    pub(super) pool: PoolId,
    pub(super) seconds: f64,
}

impl ExpectedWait {
    /// Returns the wait of an arrival that finds a slot of `pool` free.
    fn none(pool: PoolId) -> Self {
        Self { pool, seconds: 0.0 }
    }
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Counts the time up to now in which requests wait for a slot of `pool`.
    #[inline]
    pub(super) fn observe(&mut self, capacity: &C, pool: PoolId) {
        let is_idle = self.queue.is_idle(pool);
        let base = self.base_mut();
        let now = base.clock.now;
        let load = base.overload.pool_mut(pool);
        let slots = ask::slots(capacity, pool);
        let Some(state) = ask::on_demand(capacity, |it| it.slot_state(pool)) else {
            return load.observe(now, slots, is_idle);
        };
        // Read before the state is set, because the time since the last call counts only if the slots were ready in it.
        let was_made = state == SlotState::Ready && load.is_made_since(now);
        load.observe(now, slots, is_idle || !was_made);
        load.set_slot_state(now, state);
    }

    /// Counts the time for all pools that could serve a lane.
    #[inline]
    pub(super) fn observe_lane(&mut self, capacity: &C, lane: u32) {
        // Iterates by index, because the loop changes the measurements.
        for nth in 0..self.queue.pools(lane).len() {
            let pool = self.queue.pools(lane)[nth];
            self.observe(capacity, pool);
        }
    }

    /// Counts the time for all pools for which requests wait.
    pub(super) fn observe_waiters(&mut self, capacity: &C) {
        for lane in self.queue.one_of_each_group() {
            self.observe_lane(capacity, lane);
        }
    }

    /// Sets the pools that are in service, so that no slots are expected from the others.
    pub(super) fn observe_pools_in_service(&mut self, capacity: &C) {
        if let Some(pools) = ask::pools_in_service(capacity) {
            let base = self.base_mut();
            base.overload.set_in_service(&pools, base.clock.now);
        }
    }

    /// Counts the time for the pools that changed their number of slots since their last observation. Reports need
    /// this, because a limit may change while the room is empty, or without notice.
    pub(super) fn observe_new_limits(&mut self, capacity: &C) {
        for &pool in ask::all_pools(capacity).iter() {
            let load = self.base_mut().overload.pool_mut(pool);
            if !load.has_slots(ask::slots(capacity, pool)) {
                self.observe(capacity, pool);
            }
        }
    }

    /// Returns the predicted wait of a newcomer to `lane`, in seconds, or 0 if it is unknown.
    ///
    /// # Errors
    ///
    /// Returns the reason if the newcomer may not wait.
    pub(super) fn predict(
        &mut self,
        capacity: &C,
        ticket: &Ticket,
        limits: WaitLimits,
        lane: u32,
    ) -> Result<f32, RejectReason<C::Unservable>> {
        let now = self.base().clock.now;
        let is_predicted = self.base().is_predicted(ticket) && !self.is_far_above(lane, ticket);
        let is_short = is_predicted && self.is_short(ticket, limits, lane);
        if !is_short {
            self.observe_lane(capacity, lane);
        }
        let counted = self.counted(capacity, limits, lane, now);
        if let Some(why) = self.base().refusal(ticket, counted, now) {
            // A room of size 0 rejects a tenant at its limit for that limit, because slots may be free.
            let is_of_size_0 = matches!(why, RejectReason::Shed | RejectReason::Disabled);
            return Err(
                match is_of_size_0 && !self.queue.may_lease(&ticket.tenant) {
                    true => RejectReason::TenantFull,
                    false => why,
                },
            );
        }
        // If a tenant is at its limit, its requests wait for its own slots, so the backlog of others does not matter.
        let is_limited = self.queue.waits_for_its_tenant(&ticket.tenant, lane);
        if is_short || !is_predicted || is_limited {
            return Ok(0.0);
        }
        let Some(&pool) = self.queue.pools(lane).first() else {
            return Ok(0.0);
        };
        let newcomer = self.queue.newcomer(ticket, limits, now);
        let Backlog { ahead, flows } = self.queue.backlog(newcomer, lane);
        let base = self.base();
        let Priority(level) = base.config.levels.clamp(ticket.priority);
        let arriving = Arriving {
            ahead,
            flows,
            predicted: self.expected_wait(ahead, newcomer, lane),
            leased: base.counters.leases_used(ask::leased(capacity)),
            ..base.arriving(level, counted, (pool, self.queue.hash(lane)))
        };
        Ok(self.base_mut().admit(&ticket.tenant, &arriving)? as f32)
    }

    /// Returns `true` if a request is admitted because the wait of one just before it was far below the target. Counts
    /// the request in that case.
    #[inline]
    fn is_short(&mut self, ticket: &Ticket, limits: WaitLimits, lane: u32) -> bool {
        // A request with a deadline may be late even so. An idle pool has to be observed, because its time counts from
        // now on, while the time of a pool with waiters counts up to the next event.
        let &[pool] = self.queue.pools(lane) else {
            return false;
        };
        if limits.deadline < NEVER || self.queue.is_idle(pool) {
            return false;
        }
        let (lane_hash, base) = (self.queue.hash(lane), self.base_mut());
        let Priority(level) = base.config.levels.clamp(ticket.priority);
        let now = base.clock.now;
        base.overload.is_short(lane_hash, level, now)
    }

    /// Returns the bounds of a request's wait. The time in which slots of its lane are being started does not count.
    #[inline]
    fn counted(&self, capacity: &C, limits: WaitLimits, lane: u32, now: Nanos) -> WaitLimits {
        if !ask::is_on_demand(capacity) {
            return limits;
        }
        let slots = self.base().overload.slots_of(self.queue.pools(lane));
        counted(limits, now, slots, now)
    }

    /// Returns the longest wait of a newcomer of this level, behind all waiters of the level and above, over the slots
    /// for which requests wait now. It is 0 if the newcomer would find a slot free, and `None` while the wait is
    /// unknown.
    pub(super) fn longest_wait(&self, capacity: &C, level: u8) -> Option<ExpectedWait> {
        let base = self.base();
        let kept = base.kept_above(level);
        let has_free =
            |pools: &[PoolId]| pools.iter().any(|&pool| ask::is_free(capacity, pool, kept));
        if self.queue.is_empty() {
            let pools = ask::all_pools(capacity);
            let &pool = pools.first()?;
            if has_free(&pools) {
                return Some(ExpectedWait::none(pool));
            }
            // Every slot is busy and the room is empty, so the next slot that comes back goes to this request.
            let seconds = base.overload.total_per_second()?.recip();
            return Some(ExpectedWait { pool, seconds });
        }
        let newcomer = Newcomer::after_all(level, base.clock.now);
        let waits = self.queue.one_of_each_group().into_iter();
        let waits = waits.filter_map(|lane| {
            let pools = self.queue.pools(lane);
            let &pool = pools.first()?;
            let ahead = self.queue.ahead_in_group(lane, newcomer);
            if ahead == 0 && has_free(pools) {
                return Some(ExpectedWait::none(pool));
            }
            let seconds = self.expected_wait(ahead, newcomer, lane)?;
            Some(ExpectedWait { pool, seconds })
        });
        waits.max_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }

    /// Returns the wait of a newcomer with `ahead` waiters of its group before it. `None` until all pools have
    /// measurements.
    fn expected_wait(&self, ahead: usize, newcomer: Newcomer<'_>, lane: u32) -> Option<f64> {
        let overload = &self.base().overload;
        // The newcomer's own slot comes after those of the waiters before it.
        let own = (ahead + 1) as f64;
        let pools = self.queue.pools(lane);
        // The lane nearly always has one pool without other waiters.
        if let &[pool] = pools
            && self.queue.ahead_of_others(pool, lane, newcomer) == 0.0
        {
            return Some(own / overload.per_second(pool)?);
        }
        let pools = pools.iter().map(|&pool| {
            Some(PoolBacklog {
                per_second: overload.per_second(pool)?,
                others: self.queue.ahead_of_others(pool, lane, newcomer),
            })
        });
        let mut pools: Vec<_> = pools.collect::<Option<_>>()?;
        Some(expected_wait(own, &mut pools))
    }
}
