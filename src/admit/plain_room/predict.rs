//! How long a newcomer would have to wait, by the number of waiters ahead of it.

use super::{ONLY_LANE, ONLY_POOL, PlainRoom};
use crate::admit::room::slots;
use crate::admit::room_base::PredictedWait;
use crate::admit::waiters::WaitLimits;
use crate::admit::{Capacity, Priority, RejectReason, Ticket};

impl<C: Capacity, W> PlainRoom<C, W> {
    /// Counts the time up to now in which requests wait that are not patient.
    pub(super) fn observe(&mut self, capacity: &C) {
        let (now, is_empty) = (self.base.now, self.base.placed() == 0);
        let load = self.base.overload.pool_mut(ONLY_POOL);
        load.observe(now, slots(capacity, ONLY_POOL), is_empty);
    }

    /// The wait of a newcomer, in seconds; 0 if that is not known. Or the reason why it may not wait.
    pub(super) fn predict(
        &mut self,
        capacity: &C,
        ticket: &Ticket,
        Priority(level): Priority,
        limits: WaitLimits,
    ) -> Result<f32, RejectReason<C::Unservable>> {
        if let Some(why) = self.base.refusal(ticket, limits, self.base.now) {
            return Err(why);
        }
        if !self.base.is_predicted(ticket) {
            return Ok(0.0);
        }
        let mut ahead = self.by_level.count_above(level);
        let key = self.base.key_if_queued(ticket, limits);
        if self.base.age_order.is_next(key) {
            // Newest first, none of its own level goes before it.
            ahead -= self.by_level.count(level);
        }
        let wait = PredictedWait {
            pool: ONLY_POOL,
            lane_hash: ONLY_LANE,
            is_first: ahead == 0,
            flows: None,
            leased: self.base.leases_used(capacity.leased()),
            seconds: self.expected_wait(ahead),
        };
        Ok(self.base.admit(ticket, limits, wait)? as f32)
    }

    /// The wait of a newcomer with `ahead` waiters before it, in seconds; `None` while the pool is not measured.
    pub(super) fn expected_wait(&self, ahead: usize) -> Option<f64> {
        let per_second = self.base.overload.per_second(ONLY_POOL)?;
        // It gets the slot after those of the waiters before it.
        Some((ahead + 1) as f64 / per_second)
    }
}
