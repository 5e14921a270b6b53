//! The end of a wait for its task, which takes the outcome or cancels the waiter.

use std::time::{Duration, Instant};

use super::{Answer, HoldId, WaitingRoom};
use crate::admit::nanos::{Nanos, seconds};
use crate::admit::waiters::WaiterId;
use crate::admit::{Capacity, RejectReason, ServiceSample, Share, WakeList, ask};

/// A waiter in front of a capacity, with its demand and its state.
pub(crate) struct Waiter<C: Capacity, W> {
    pub(crate) demand: C::Demand,
    pub(crate) state: State<C, W>,
}

impl<C: Capacity, W> Waiter<C, W> {
    #[inline]
    pub(crate) fn new(demand: C::Demand, waker: Option<W>) -> Self {
        let state = State::Waiting(waker);
        Self { demand, state }
    }
}

/// The state of a waiter: waiting, granted, or rejected.
pub(crate) enum State<C: Capacity, W> {
    /// The waiter waits, with its waker if one is set and was not taken.
    Waiting(Option<W>),
    /// The waiter was granted this slot after `waited` nanoseconds, and its task has yet to take it.
    Leased {
        lease: C::Lease,
        waited: Nanos,
        /// The hold of the slot, if its tenant is charged for it.
        hold: Option<HoldId>,
    },
    /// The waiter was rejected for this reason, and its task has yet to take it.
    Rejected(RejectReason<C::Unservable>),
}

/// The outcome of a wait, and the parts that are left of the waiter.
pub(crate) struct Answered<C: Capacity> {
    pub(crate) answer: Answer<C>,
    pub(crate) demand: C::Demand,
    /// The tenant that the slot belongs to, if tenants have shares or limits.
    pub(crate) share: Option<Box<Share>>,
    /// The beginning of the request's service, if the service is watched.
    pub(crate) served: Option<ServiceSample>,
    /// The time from the arrival to the grant of the slot. `None` if the waiter was rejected.
    pub(crate) waited: Option<Duration>,
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Takes the waiter's outcome, if its wait is over. Its id is invalid afterwards.
    pub fn take_outcome(
        &mut self,
        id: WaiterId,
    ) -> Option<Result<C::Lease, RejectReason<C::Unservable>>> {
        Some(self.take_answer(id)?.answer)
    }

    /// Takes the waiter's outcome like [`take_outcome`](Self::take_outcome), with the name of its hold if its slot is to
    /// be charged.
    pub fn take_holding(&mut self, id: WaiterId) -> Option<(Answer<C>, Option<HoldId>)> {
        let answered = self.take_answer(id)?;
        let hold = answered.share.and_then(|share| share.hold);
        Some((answered.answer, hold))
    }

    /// Takes the waiter's outcome, together with the parts that are left of the waiter, if its wait is over.
    #[inline]
    pub(crate) fn take_answer(&mut self, id: WaiterId) -> Option<Answered<C>> {
        if let State::Waiting(_) = self.waiters().payload(id.idx).state {
            // The waiter stays, and its id stays valid.
            return None;
        }
        let (meta, Waiter { demand, state }) = self.waiters_mut().take(id.idx);
        self.queue.trim_if_empty();
        let (answer, waited, hold) = match state {
            State::Leased {
                lease,
                waited,
                hold,
            } => {
                self.uncollected -= 1;
                (Ok(lease), Some(Duration::from_nanos(waited)), hold)
            }
            State::Rejected(why) => (Err(why), None, None),
            // This case returned above.
            State::Waiting(_) => return None,
        };
        let has_share = answer.is_ok() && (meta.is_counted || hold.is_some() || self.is_fair());
        let share = has_share.then(|| {
            Box::new(Share {
                tenant: meta.tenant().clone(),
                level: meta.level,
                is_counted: meta.is_counted,
                hold,
            })
        });
        let served = match &answer {
            // The slot was granted in the latest event or before it.
            Ok(_) => self.base_mut().sample(meta.lane_hash),
            Err(_) => None,
        };
        Some(Answered {
            answer,
            demand,
            share,
            served,
            waited,
        })
    }

    /// Returns the beginning of the service of a request with this demand, which holds a slot from now on. For requests
    /// that did not wait, and for rooms without a gate.
    #[must_use]
    pub fn served(&self, capacity: &C, demand: &C::Demand, now: Instant) -> ServiceSample {
        let lane = ask::lane(capacity, demand).ok();
        ServiceSample {
            started: self.base().clock.epoch.nanos(now),
            lane_hash: lane.map_or(0, |lane| self.queue.hash_of(&lane)),
        }
    }

    /// Records that the answer to a request begins. The room learns the service times of the request's lane from it.
    pub fn on_answered(&mut self, sample: &ServiceSample, now: Instant) {
        let base = self.base_mut();
        let time = base.clock.epoch.nanos(now).saturating_sub(sample.started);
        base.overload.service.add(sample.lane_hash, seconds(time));
    }

    /// Removes a waiter after its caller gave up. Returns its waker, and the slot that it was granted, which the caller
    /// has to release.
    pub fn cancel(&mut self, id: WaiterId, now: Instant) -> (Option<C::Lease>, Option<W>) {
        match self.remove(id, now).state {
            State::Waiting(waker) => (None, waker),
            State::Leased { lease, .. } => (Some(lease), None),
            State::Rejected(_) => (None, None),
        }
    }

    /// Removes a waiter after its caller gave up, and returns all parts that are left of it.
    pub(crate) fn remove(&mut self, id: WaiterId, now: Instant) -> Waiter<C, W> {
        // Only the time is set, because other waits that end by now could not deliver their wakers here.
        self.base_mut().clock.set_now(now);
        // A waiter in another state is unlinked already.
        if let State::Waiting(_) = self.waiters().payload(id.idx).state {
            self.queue.unlink(id.idx, false);
            self.on_wait_ended(id.idx, false);
            let priority = self.waiters().meta(id.idx).priority;
            self.base_mut().counters.on_cancelled(priority);
        }
        let (meta, waiter) = self.waiters_mut().take(id.idx);
        self.queue.trim_if_empty();
        // The slot was granted but not taken, so it went unused. A rejection was counted when it happened.
        if let State::Leased { hold, .. } = &waiter.state {
            self.uncollected -= 1;
            self.base_mut().counters.stats.unclaimed += 1;
            self.base_mut().counters.on_cancelled(meta.priority);
            if let Some(hold) = hold {
                self.end_hold(*hold, now);
            }
            // The caller releases the slot itself.
            if meta.is_counted {
                self.on_tenant_released(meta.tenant());
            }
        }
        waiter
    }

    /// Rejects the waiter for this reason, if it still waits.
    pub fn reject(
        &mut self,
        id: WaiterId,
        why: RejectReason<C::Unservable>,
        wakes: &mut WakeList<W>,
    ) {
        if let State::Waiting(_) = self.waiters().payload(id.idx).state {
            self.reject_idx(id.idx, why, wakes);
        }
    }
}
