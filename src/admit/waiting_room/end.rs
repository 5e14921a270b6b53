//! The end of a wait inside the room, with a slot or with a reason for the rejection.

use super::WaitingRoom;
use super::outcome::State;
use crate::admit::wait_queue::Common;
use crate::admit::waiters::WaiterId;
use crate::admit::{Capacity, PoolId, RejectReason, WakeList, ask};

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Grants a waiter its slot, which is one of `pool`.
    #[inline]
    pub(super) fn grant(
        &mut self,
        idx: u32,
        (lease, pool): (C::Lease, PoolId),
        wakes: &mut WakeList<W>,
    ) {
        self.queue.unlink(idx, true);
        let flows = self.queue.flows_of(idx);
        let Common { base, waiters, .. } = &mut self.queue.common;
        let meta = waiters.meta(idx);
        // While only patient waiters are present, slots that are reserved for others may be free, so hand-overs are not
        // measured.
        if !meta.is_patient || base.counters.placed() > 0 {
            base.overload.pool_mut(pool).on_handed_over();
        }
        let flow = flows.map(|discipline| (discipline, meta.tenant(), meta.cost() as f64));
        base.on_served(meta.priority, flow);
        let waited = base.clock.now.saturating_sub(meta.limits.arrival);
        self.uncollected += 1;
        let hold = flows.and_then(|_| self.begin_hold_of(idx, pool));
        let granted = State::Leased {
            lease,
            waited,
            hold,
        };
        self.finish(idx, granted, wakes);
    }

    /// Releases a slot that was leased for a waiter but not used.
    pub(super) fn give_back(&mut self, capacity: &C, lease: C::Lease) {
        _ = ask::release(capacity, lease);
        // The lease was counted as given, so it is counted as unclaimed here.
        self.base_mut().counters.stats.unclaimed += 1;
    }

    pub(super) fn reject_idx(
        &mut self,
        idx: u32,
        why: RejectReason<C::Unservable>,
        wakes: &mut WakeList<W>,
    ) {
        self.queue.unlink(idx, false);
        self.reject_unlinked(idx, why, wakes);
    }

    /// Rejects a waiter that is unlinked already.
    pub(super) fn reject_unlinked(
        &mut self,
        idx: u32,
        why: RejectReason<C::Unservable>,
        wakes: &mut WakeList<W>,
    ) {
        let Common { base, waiters, .. } = &mut self.queue.common;
        base.counters.on_rejected(waiters.meta(idx).priority, &why);
        self.finish(idx, State::Rejected(why), wakes);
    }

    pub(super) fn reject_all(
        &mut self,
        unlinked: Vec<(WaiterId, RejectReason<C::Unservable>)>,
        wakes: &mut WakeList<W>,
    ) {
        for (id, why) in unlinked {
            self.reject_unlinked(id.idx, why, wakes);
        }
    }

    /// Compares a wait that ended with its prediction.
    #[inline]
    pub(super) fn on_wait_ended(&mut self, idx: u32, is_served: bool) {
        if self.waiters().meta(idx).predicted > 0.0 {
            self.compare_prediction(idx, is_served);
        }
    }

    fn compare_prediction(&mut self, idx: u32, is_served: bool) {
        // A lane without pools is charged to pool 0, which does no harm because its waiters are never served.
        let pool = self.queue.pools_of(idx).first().copied();
        let Common { base, waiters, .. } = &mut self.queue.common;
        base.on_wait_ended(pool.unwrap_or(PoolId(0)), waiters.meta(idx), is_served);
    }

    /// Sets the outcome of a waiter that is unlinked, and takes its waker.
    #[inline]
    fn finish(&mut self, idx: u32, state: State<C, W>, wakes: &mut WakeList<W>) {
        match &state {
            State::Leased { .. } => self.on_wait_ended(idx, true),
            // A waiter is rejected as overloaded after it has waited for twice the target.
            State::Rejected(
                RejectReason::TimedOut
                | RejectReason::DeadlinePassed
                | RejectReason::Overloaded { .. },
            ) => self.on_wait_ended(idx, false),
            // The full length of any other wait is unknown.
            _ => {}
        }
        let waiter = self.waiters_mut().payload_mut(idx);
        // A missing waker means that the task has not polled yet or has been woken, so it will look by itself.
        if let State::Waiting(Some(waker)) = std::mem::replace(&mut waiter.state, state) {
            wakes.push(waker);
        }
    }
}
