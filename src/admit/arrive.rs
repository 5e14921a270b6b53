//! Who comes gets a slot, a chair or a reason; and sometimes somebody else gets up.
//!
//! # Who came first
//!
//! Whoever comes stands behind those who came before: the order in which they enter is the order in which they
//! came, whatever their tickets say of it, for clocks are read outside the gate's lock and tickets may come
//! from elsewhere. Only a ticket that is [returning](Ticket::returning) stands where its arrival puts it. So
//! that both orders are one, everyone is taken to have come when their ticket says, but not before anybody who
//! sat down before, returners aside, and not after they sat down. Equal instants go in the order of entry. Of whom
//! it is not known came next after all who are there.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::Instant;

use super::nanos::{NEVER, Nanos, Times};
use super::patience::Patience;
use super::room::{AdmitOutcome, State, Waiter, WaiterId, WaitingRoom};
use super::{Capacity, LeaseError, RejectReason, Ticket, WakeList};

/// What became of an arrival, or the capacity's panic; and its demand, unless it waits.
pub(crate) type Arrived<C> = (
    thread::Result<AdmitOutcome<C>>,
    Option<<C as Capacity>::Demand>,
);

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Somebody arrives: a slot if one is free that no waiter could use, else a chair, else a reason.
    ///
    /// A slot that was freed a moment ago belongs to the best of those who could use it.
    pub fn arrive(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Instant,
        woken: &mut WakeList<W>,
    ) -> AdmitOutcome<C> {
        let (outcome, _) = self.arrive_keeping(capacity, ticket, demand, now, woken);
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// As [`arrive`](Self::arrive). The demand comes back unless it waits, also if the capacity panics.
    pub(crate) fn arrive_keeping(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Instant,
        woken: &mut WakeList<W>,
    ) -> Arrived<C> {
        let arrival = ticket.arrival.unwrap_or(now);
        let times = self.epoch.times(Some(arrival), Some(now));
        self.arrive_at(capacity, ticket, demand, times, woken)
    }

    /// As [`arrive_keeping`](Self::arrive_keeping), where the times are known.
    pub(super) fn arrive_at(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        times: Times,
        woken: &mut WakeList<W>,
    ) -> Arrived<C> {
        let (outcome, demand) = self.admit(capacity, ticket, demand, times, woken);
        if let Ok(AdmitOutcome::Rejected(why)) = &outcome {
            self.stats.reject(why);
        }
        (outcome, demand)
    }

    fn admit(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        times: Times,
        woken: &mut WakeList<W>,
    ) -> Arrived<C> {
        if self.closed {
            let outcome = AdmitOutcome::Rejected(RejectReason::ShuttingDown);
            return (Ok(outcome), Some(demand));
        }
        let (arrival, now) = (self.arrival(times), times.now);
        self.catch_up(now, woken);
        if self.waiting == 0 {
            let outcome = match catch_unwind(AssertUnwindSafe(|| capacity.try_lease(&demand))) {
                Ok(Ok(lease)) => Some(Ok(AdmitOutcome::Leased(lease))),
                Ok(Err(LeaseError::Unservable(why))) => {
                    Some(Ok(AdmitOutcome::Rejected(RejectReason::Unservable(why))))
                }
                Ok(Err(LeaseError::Busy)) => None,
                Err(panic) => Some(Err(panic)),
            };
            if let Some(outcome) = outcome {
                return (outcome, Some(demand));
            }
            self.drain.room_was_empty(now);
        }
        self.drain.observe(now);
        self.trim_if_due(now);
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let lane = capacity.lane(&demand);
            let express = self.express(&ticket, &lane, times);
            express.ok_or_else(|| self.lane_of(capacity, lane))
        }));
        let (key, refusal) = match asked {
            Ok(Ok(express)) => (self.sit_down(express, demand, |_| None), None),
            Ok(Err(lane)) => {
                let patience = Patience::new(arrival, ticket.deadline, self.epoch);
                let refusal = self.refusal(&ticket, patience, now);
                let key = self.sit(ticket, patience, (lane, demand), |_| None, now);
                (key, refusal)
            }
            Err(panic) => return (Err(panic), Some(demand)),
        };
        // A capacity that panics here leaves a waiter behind that has no caller.
        let claimed = catch_unwind(AssertUnwindSafe(|| {
            self.claim(capacity, key.at, woken);
        }));
        if let Err(panic) = claimed {
            let Waiter { demand, state } = self.remove(key);
            if let State::Leased(lease) = state {
                capacity.release(lease);
            }
            return (Err(panic), Some(demand));
        }
        if self.chairs.body(key.at).state.is_waiting() {
            return match refusal.or_else(|| self.no_chair(key, woken)) {
                None => (Ok(AdmitOutcome::Queued(key)), None),
                Some(why) => {
                    self.unlink(key.at);
                    let waiter = self.chairs.leave(key.at);
                    (Ok(AdmitOutcome::Rejected(why)), Some(waiter.demand))
                }
            };
        }
        let Waiter { demand, state } = self.chairs.leave(key.at);
        let outcome = match state {
            State::Leased(lease) => AdmitOutcome::Leased(lease),
            State::Rejected(why) => {
                self.stats.unreject(&why);
                AdmitOutcome::Rejected(why)
            }
            State::Waiting(_) => unreachable!("it was found not to wait"),
        };
        (Ok(outcome), Some(demand))
    }

    /// The lane of this key. The capacity is asked before anything is changed, because it may panic.
    #[inline]
    pub(super) fn lane_of(&mut self, capacity: &C, lane: C::Lane) -> u32 {
        let ask = |lane: &C::Lane| (capacity.pools(lane), capacity.partition(lane));
        self.lanes.lane_of(&self.chairs, lane, ask)
    }

    /// Why this ticket may not wait, whoever else does.
    #[inline]
    fn refusal(
        &self,
        ticket: &Ticket,
        patience: Patience,
        now: Nanos,
    ) -> Option<RejectReason<C::Unservable>> {
        if self.config.max_size == 0 {
            return Some(RejectReason::Disabled);
        }
        if !ticket.wait {
            return Some(RejectReason::NotQueued);
        }
        let longest = self.chairs.longest_wait;
        (patience.end(longest) <= now).then(|| patience.why_expired(longest))
    }

    /// Why the waiter who sat down last must get up again; or who gets up instead.
    #[inline]
    fn no_chair(
        &mut self,
        key: WaiterId,
        woken: &mut WakeList<W>,
    ) -> Option<RejectReason<C::Unservable>> {
        if let Some(most) = self.config.max_size_per_tenant {
            let tenant = self.chairs.tenant(key.at);
            if self
                .tenants
                .get(tenant)
                .is_some_and(|&waiting| waiting > most)
            {
                return Some(RejectReason::TenantFull);
            }
        }
        let place = self.chairs.place(key.at);
        let (own, section) = (place.level, self.lanes.section_at(place.lane));
        let lowest = if self.sections.is_overfull(section) {
            self.sections.lowest_and_latest(&self.chairs, section.id)
        } else if self.waiting + self.reserved > self.config.max_size {
            self.arrivals.lowest_and_latest(&self.chairs)
        } else {
            return None;
        };
        match lowest {
            Some(lowest) if self.config.displace && self.chairs.place(lowest).level > own => {
                self.answer(lowest, RejectReason::Displaced, woken);
                None
            }
            _ => Some(RejectReason::Full),
        }
    }

    #[inline]
    pub(super) fn sit(
        &mut self,
        ticket: Ticket,
        patience: Patience,
        (lane, demand): (u32, C::Demand),
        note: impl FnOnce(WaiterId) -> Option<W>,
        now: Nanos,
    ) -> WaiterId {
        let priority = self.config.levels.clamp(ticket.priority);
        self.seq += 1;
        let seq = self.seq;
        let is_back = ticket.requeued && ticket.arrival.is_some();
        let since = match patience.arrival {
            NEVER => self.since(self.behind_all(), false),
            arrival => self.since(arrival.min(now), is_back),
        };
        let at = self.chairs.take(priority);
        let key = WaiterId { at, seq };
        let state = State::Waiting(note(key));
        let waiter = Waiter { demand, state };
        self.chairs
            .sit(at, (since, seq), priority, ticket, patience, waiter);
        self.line_up(at, lane, None, now);
        key
    }

    /// When somebody arrived, as far as anybody asks; not after now, or the wait would have no bound but the ticket's.
    #[inline]
    pub(super) fn arrival(&self, Times { arrival, now }: Times) -> Nanos {
        match arrival {
            NEVER if self.measures_waits() => now,
            NEVER => NEVER,
            arrival => arrival.min(now),
        }
    }

    /// When one came that arrived then, as far as its place in line goes.
    #[inline]
    fn since(&mut self, arrival: Nanos, returning: bool) -> Nanos {
        if returning {
            return arrival;
        }
        self.latest = self.latest.max(arrival);
        self.latest
    }

    /// When one came of whom it is not known: after all who are there, so that none of them stands behind it that
    /// comes back.
    #[inline(always)]
    pub(super) fn behind_all(&self) -> Nanos {
        (self.latest + 1).min(NEVER - 1)
    }
}
