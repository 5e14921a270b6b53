//! Arrivals, which get a slot, a position in the waiting room, or a reason for the rejection.

use std::time::Instant;

use super::outcome::Waiter;
use super::{AdmitOutcome, HoldId, WaitingRoom};
use crate::admit::ask::UnknownLane;
use crate::admit::nanos::Nanos;
use crate::admit::wait_queue::lanes::{Head, NO_PUMP, Scope};
use crate::admit::waiters::WaitLimits;
use crate::admit::{
    Capacity, KeptSlots, LeaseError, PoolId, Priority, RejectReason, Ticket, WakeList, ask,
};

/// A request that arrives. If it has to wait, the room takes its tenant, its demand and its waker.
pub(crate) struct Arrival<D, W> {
    pub(crate) ticket: Ticket,
    /// `None` once the room has taken it.
    demand: Option<D>,
    pub(crate) waker: Option<W>,
    /// The hold of the slot, if the request got one that is to be charged.
    pub(crate) hold: Option<HoldId>,
}

impl<D, W> Arrival<D, W> {
    #[inline]
    pub(crate) fn new(ticket: Ticket, demand: D) -> Self {
        Self {
            ticket,
            demand: Some(demand),
            waker: None,
            hold: None,
        }
    }

    /// Returns the demand, unless the room has taken it.
    #[inline]
    pub(crate) fn demand(&self) -> Option<&D> {
        self.demand.as_ref()
    }
}

/// The decision about an arrival that is not rejected.
enum Admission<C: Capacity> {
    /// The request gets a slot, because better waiters could not use it.
    Leased(C::Lease),
    /// The request waits.
    Waits {
        lane: u32,
        limits: WaitLimits,
        /// The predicted wait in seconds; 0 if it is unknown.
        predicted: f32,
    },
}

/// The reason why an arrival is rejected.
type Refusal<C> = RejectReason<<C as Capacity>::Unservable>;

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Handles the arrival of a request, with its waker.
    pub(crate) fn arrive_with(
        &mut self,
        capacity: &C,
        Arrival {
            ticket,
            demand: given,
            waker,
            hold,
        }: &mut Arrival<C::Demand, W>,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) -> AdmitOutcome<C> {
        let Some(demand) = given.take() else {
            unreachable!("a request arrives once");
        };
        let now = self.advance_to(now, wakes);
        let Priority(level) = self.base().config.levels.clamp(ticket.priority);
        let outcome = match self.admit(capacity, ticket, &demand, (level, now), wakes) {
            Ok(Admission::Leased(lease)) => {
                *hold = self.hold_of_arrival(capacity, ticket, &demand, &lease);
                AdmitOutcome::Leased(lease)
            }
            Ok(Admission::Waits {
                lane,
                limits,
                predicted,
            }) => {
                let waiter = Waiter::new(demand, waker.take());
                let queue = &mut self.queue;
                let id = queue.insert(ticket, limits, lane, (now, predicted), |_| waiter);
                return AdmitOutcome::Queued(id);
            }
            Err(why) => {
                // Waiters that are rejected later are counted at that time.
                self.base_mut().counters.on_rejected(level, &why);
                AdmitOutcome::Rejected(why)
            }
        };
        *given = Some(demand);
        outcome
    }

    fn admit(
        &mut self,
        capacity: &C,
        ticket: &mut Ticket,
        demand: &C::Demand,
        (level, now): (u8, Nanos),
        wakes: &mut WakeList<W>,
    ) -> Result<Admission<C>, Refusal<C>> {
        let base = self.base_mut();
        // Checked before the capacity is asked, because a closed room stops giving slots, too.
        if base.counters.is_closed {
            return Err(RejectReason::ShuttingDown);
        }
        if base.counters.waiting == 0 {
            // An empty room has nothing to offer slots to.
            base.reserves.begin_offer();
        }
        let limits = base.clock.limits(ticket, now);
        let lane = match self.lease_or_lane(capacity, demand, (&mut *ticket, limits), now, wakes)? {
            Ok(lease) => {
                self.on_arrival_leased(capacity, (ticket, limits), level, &lease);
                return Ok(Admission::Leased(lease));
            }
            Err(lane) => lane,
        };
        // The request has to wait, if it may.
        self.queue.trim_if_due(now);
        let predicted = self.predict(capacity, ticket, limits, lane)?;
        let place = self.queue.place_for(ticket, lane, limits.arrival, now)?;
        if let Some(displaced) = place {
            self.reject_idx(displaced, RejectReason::Displaced, wakes);
        }
        self.learn_cost(lane, ticket.cost);
        Ok(Admission::Waits {
            lane,
            limits,
            predicted,
        })
    }

    fn on_arrival_leased(
        &mut self,
        capacity: &C,
        (ticket, limits): (&Ticket, WaitLimits),
        level: u8,
        lease: &C::Lease,
    ) {
        let base = self.base();
        if base.counters.waiting > 0 && ask::is_on_demand(capacity) {
            let level = base.level_of(ticket.priority, limits.arrival, base.clock.now);
            ask::on_overtake(capacity, lease, Priority(level));
        }
        self.queue.on_leased(&ticket.tenant);
        self.base_mut().overload.idleness.on_served(level);
    }

    /// Returns the slot that the capacity gives to a request, or the lane if the request has to wait.
    fn lease_or_lane(
        &mut self,
        capacity: &C,
        demand: &C::Demand,
        (ticket, limits): (&mut Ticket, WaitLimits),
        now: Nanos,
        wakes: &mut WakeList<W>,
    ) -> Result<Result<C::Lease, u32>, Refusal<C>> {
        let is_empty = self.queue.is_empty();
        // In an empty room the request is the best one, so its lane is not needed.
        if is_empty && self.queue.may_lease(&ticket.tenant) {
            match ask::try_lease(capacity, demand, self.kept(ticket, limits, now)) {
                Ok(lease) => return Ok(Ok(lease)),
                Err(LeaseError::Unservable(why)) => return Err(RejectReason::Unservable(why)),
                Err(LeaseError::Busy) => {}
            }
        }
        // A request can't wait if the capacity fails to name its lane.
        let lane = self.lane(capacity, demand);
        let lane = lane.map_err(|UnknownLane| RejectReason::NotQueued)?;
        self.expect_hold(lane, ticket);
        if is_empty {
            // The capacity was busy above, or the request's tenant is at its limit.
            return Ok(Err(lane));
        }
        match self.lease_in_order(capacity, demand, (&*ticket, limits), (lane, now), wakes) {
            Ok(lease) => Ok(Ok(lease)),
            Err(LeaseError::Unservable(why)) => Err(RejectReason::Unservable(why)),
            Err(LeaseError::Busy) => Ok(Err(lane)),
        }
    }

    #[inline]
    pub(super) fn lane(&mut self, capacity: &C, demand: &C::Demand) -> Result<u32, UnknownLane> {
        let lane = ask::lane(capacity, demand)?;
        self.queue
            .lane(lane, |lane| ask::about_lane(capacity, lane))
    }

    /// Leases a slot for a request that arrives, if a slot is free that better waiters could not use. Returns `Busy` if
    /// the request has to wait.
    ///
    /// The capacity is asked for the request's own slot first, because most arrivals at a busy capacity find it taken.
    /// If it gives a slot that a better waiter could use, the slot goes back and is granted to the best waiter. Another
    /// slot may then be left for the request. Every other slot that a waiter could use has a release of its own on the
    /// way.
    ///
    /// The loop ends because each round but the last answers a waiter. A round without an answer means that another
    /// thread took the slot in between, or that the capacity changed and has not announced it yet. The request then
    /// waits for that release, or for [`on_capacity_changed`](Self::on_capacity_changed).
    fn lease_in_order(
        &mut self,
        capacity: &C,
        demand: &C::Demand,
        (ticket, limits): (&Ticket, WaitLimits),
        (lane, now): (u32, Nanos),
        wakes: &mut WakeList<W>,
    ) -> Result<C::Lease, LeaseError<C::Unservable>> {
        loop {
            // Checked in each round, because waiters of the request's own tenant may have been served.
            if !self.queue.may_lease(&ticket.tenant) {
                return Err(LeaseError::Busy);
            }
            let (lease, pool) = ask::lease(capacity, demand, self.kept(ticket, limits, now))?;
            let (scope, best) = self.best_for(pool, lane);
            let goes_first = best.is_none_or(|best| {
                let newcomer = self.queue.newcomer(ticket, limits, now);
                self.queue.newcomer_goes_before(newcomer, lane, best)
            });
            if goes_first {
                return Ok(lease);
            }
            if !self.pass_on(capacity, lease, scope, wakes) {
                return Err(LeaseError::Busy);
            }
        }
    }

    /// Returns the slots that a newcomer has to leave free.
    #[inline]
    fn kept(&self, ticket: &Ticket, limits: WaitLimits, now: Nanos) -> KeptSlots {
        let base = self.base();
        match base.reserves.is_empty() {
            true => KeptSlots::NONE,
            false => base.kept_above(base.level_of(ticket.priority, limits.arrival, now)),
        }
    }

    /// Returns the best waiter that competes for a slot of `pool`, which a request of `lane` has leased.
    pub(super) fn best_for(&self, pool: PoolId, lane: u32) -> (Scope, Option<Head>) {
        let scope = self.queue.claim(pool, lane);
        (scope, self.queue.best(scope, NO_PUMP))
    }

    /// Releases a slot and grants it to a better waiter. Returns `true` if any waiter was answered. Otherwise the
    /// caller must stop, because asking for another slot could go on without end.
    pub(super) fn pass_on(
        &mut self,
        capacity: &C,
        lease: C::Lease,
        scope: Scope,
        wakes: &mut WakeList<W>,
    ) -> bool {
        self.give_back(capacity, lease);
        let waiting = self.queue.len();
        self.pump(capacity, scope, wakes);
        self.queue.len() < waiting
    }
}
