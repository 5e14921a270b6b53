//! How long a newcomer would have to wait, by the work ahead of it on the pools that could serve it.

use super::FullRoom;
use crate::admit::overload::wait::{PoolBacklog, expected_wait};
use crate::admit::room::Room;
use crate::admit::room_base::PredictedWait;
use crate::admit::wait_queue::lanes::Lanes;
use crate::admit::waiters::WaitLimits;
use crate::admit::{Capacity, PoolId, RejectReason, Ticket};

impl<C: Capacity, W> FullRoom<C, W> {
    /// Counts the time up to now in which requests wait for a slot of `pool`.
    pub(super) fn observe(&mut self, capacity: &C, pool: PoolId) {
        let is_idle = self.queue.lanes().is_idle(pool);
        let base = self.queue.base_mut();
        let load = base.overload.pool_mut(pool);
        load.observe(base.now, capacity.slots(pool), is_idle);
    }

    /// The same, for all pools that could serve a lane.
    pub(super) fn observe_lane(&mut self, capacity: &C, lane: u32) {
        // Cloned, as the set is shared and the measurements are changed on the way.
        for &pool in self.queue.lanes().pools(lane).clone().iter() {
            self.observe(capacity, pool);
        }
    }

    /// The wait of a newcomer to `lane`, in seconds; 0 if that is not known. Or the reason why it may not wait.
    pub(super) fn predict(
        &mut self,
        ticket: &Ticket,
        limits: WaitLimits,
        lane: u32,
    ) -> Result<f32, RejectReason<C::Unservable>> {
        if let Some(why) = self.base().refusal(ticket, limits, self.base().now) {
            return Err(why);
        }
        let pools = self.queue.lanes().pools(lane);
        let Some(&pool) = pools.first() else {
            return Ok(0.0);
        };
        let wait = PredictedWait {
            pool,
            lane_hash: self.hash_of_lane(lane),
            seconds: self.expected_wait(ticket, limits, lane),
        };
        Ok(self.base_mut().admit(ticket, limits, wait)? as f32)
    }

    /// Names a lane among those whose service times are known.
    pub(super) fn hash_of_lane(&self, lane: u32) -> u32 {
        match C::SINGLE_LANE {
            // As in the plain room.
            true => 0,
            false => self.queue.lanes().hash(lane),
        }
    }

    /// `None` while one of the pools is not measured.
    fn expected_wait(&self, ticket: &Ticket, limits: WaitLimits, lane: u32) -> Option<f64> {
        let (base, lanes): (_, &Lanes<C::Lane>) = (self.base(), self.queue.lanes());
        let newcomer = self.queue.newcomer(ticket, limits, base.now);
        // First what is nearly always known or unknown at once: the work ahead takes longer to count.
        let backlog = |&pool: &PoolId| {
            Some(PoolBacklog {
                per_second: base.overload.per_second(pool)?,
                others: lanes.ahead_of_others(pool, lane, newcomer.level),
            })
        };
        let mut pools: Vec<_> = lanes
            .pools(lane)
            .iter()
            .map(backlog)
            .collect::<Option<_>>()?;
        // It gets the slot after those of the waiters before it.
        let nth = lanes.ahead_in_group(self.waiters(), newcomer, lane, &base.config) + 1;
        Some(expected_wait(nth as f64, &mut pools))
    }
}
