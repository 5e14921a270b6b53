//! The room from its other side: those who serve come and fetch who is next.
//!
//! A batch scheduler has no slots that come back one by one. At each step it looks how much it can take, and a
//! room that only hands out slots would have to be told of one for each request that it might take. Here the
//! head is looked at first, and then taken, as if it had been given a slot, or set aside so that the one behind
//! it can be looked at.

use std::time::Instant;

use super::nanos::NEVER;
use super::room::{State, Waiter, WaiterId, WaitingRoom};
use super::{Capacity, WakeList};
#[cfg(feature = "batch")]
use {
    super::nanos::Times,
    super::patience::Patience,
    super::room::AdmitOutcome,
    super::{LeaseError, RejectReason, Ticket},
    std::convert::Infallible,
    std::panic::resume_unwind,
};

/// A waiter that is out of its line for a moment, to be [put back](WaitingRoom::restore).
#[derive(Debug)]
#[must_use = "whoever is not put back is never served"]
pub struct Skipped(WaiterId);

impl Skipped {
    /// Who it is.
    #[must_use]
    pub fn key(&self) -> WaiterId {
        self.0
    }
}

#[cfg(feature = "batch")]
impl<C: Capacity<Lease = Infallible>, W> WaitingRoom<C, W> {
    /// Somebody arrives who will be fetched, and leaves a note for whoever does. It is asked for only if there is a
    /// chair. Rejects those whom [`arrive`](Self::arrive) would reject. The times are known, if the room
    /// [asks](Self::asks_time) for them.
    #[inline]
    pub(crate) fn join(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        note: impl FnOnce(WaiterId) -> Option<W>,
        times: Times,
        woken: &mut WakeList<W>,
    ) -> Result<WaiterId, RejectReason<C::Unservable>> {
        if self.needs_a_look(&ticket) {
            return self.join_after_a_look(capacity, ticket, demand, note, times, woken);
        }
        let (arrival, now) = (self.arrival(times), times.now);
        self.catch_up(now, woken);
        let patience = Patience::new(arrival, ticket.deadline, self.epoch);
        let longest = self.chairs.longest_wait;
        let refusal = match capacity.try_lease(&demand) {
            Err(LeaseError::Unservable(why)) => Some(RejectReason::Unservable(why)),
            Err(LeaseError::Busy) if patience.end(longest) <= now => {
                Some(patience.why_expired(longest))
            }
            Err(LeaseError::Busy) => None,
            Ok(never) => match never {},
        };
        if let Some(why) = refusal {
            self.stats.reject(&why);
            return Err(why);
        }
        self.trim_if_due(now);
        let lane = self.lane_of(capacity, capacity.lane(&demand));
        Ok(self.sit(ticket, patience, (lane, demand), note, now))
    }

    /// Whether the time matters to the holder of this ticket.
    pub(crate) fn asks_time(&self, ticket: &Ticket) -> bool {
        self.is_timed() || self.needs_a_look(ticket)
    }

    /// Whether there is more to it than to sit down.
    #[inline]
    fn needs_a_look(&self, ticket: &Ticket) -> bool {
        let is_limited = self.config.max_size_per_tenant.is_some() || self.lanes.are_limited();
        self.closed || is_limited || !ticket.wait || !self.has_chair()
    }

    #[cold]
    fn join_after_a_look(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        note: impl FnOnce(WaiterId) -> Option<W>,
        times: Times,
        woken: &mut WakeList<W>,
    ) -> Result<WaiterId, RejectReason<C::Unservable>> {
        let (outcome, _) = self.arrive_at(capacity, ticket, demand, times, woken);
        match outcome.unwrap_or_else(|panic| resume_unwind(panic)) {
            AdmitOutcome::Queued(key) => {
                self.chairs.body_mut(key.at).state = State::Waiting(note(key));
                Ok(key)
            }
            AdmitOutcome::Rejected(why) => Err(why),
            AdmitOutcome::Leased(never) => match never {},
        }
    }
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Whether it still waits. A void key is nobody's.
    #[must_use]
    pub fn waits(&self, key: WaiterId) -> bool {
        self.chairs.still_waits(key.at, key.seq)
    }

    /// The note of a waiter, to be written on.
    pub fn note_mut(&mut self, key: WaiterId) -> Option<&mut W> {
        match &mut self.chairs.body_mut(key.at).state {
            State::Waiting(note) => note.as_mut(),
            _ => None,
        }
    }

    /// Whether anything happens here that depends on the time.
    #[inline]
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.ends.next() < NEVER || self.measures_waits()
    }

    /// Whether it matters for how long anybody has waited.
    #[inline]
    pub(super) fn measures_waits(&self) -> bool {
        self.chairs.longest_wait < NEVER || self.config.promote_after.is_some()
    }

    /// Takes the waiter out to be served, together with what it asked for and the note that it left. Its key is void
    /// then. `None` if it no longer waits.
    ///
    /// Under [`Fair`](super::Discipline::Fair) its tenant pays for it.
    #[inline]
    pub fn take(&mut self, key: WaiterId) -> Option<(C::Demand, W)> {
        if !self.waits(key) {
            return None;
        }
        self.serve(key.at);
        self.drain.depart();
        let Waiter { demand, state } = self.chairs.leave(key.at);
        self.trim_if_empty();
        match state {
            State::Waiting(note) => Some((demand, note?)),
            State::Leased(_) | State::Rejected(_) => None,
        }
    }

    /// What the waiter asks for.
    pub fn demand(&self, key: WaiterId) -> &C::Demand {
        &self.chairs.body(key.at).demand
    }

    /// Names whoever sits on the chair.
    #[cfg(feature = "batch")]
    pub(crate) fn key_of(&self, at: u32) -> WaiterId {
        let seq = self.chairs.place(at).seq;
        WaiterId { at, seq }
    }

    /// Takes a waiter out of wherever it was linked in, to be served.
    #[inline]
    pub(super) fn serve(&mut self, at: u32) {
        if !self.leave_express(at) {
            self.lanes.serve(&mut self.chairs, at);
            self.forget(at);
        }
    }

    /// Takes the waiter out of its line, to look at the one behind it. It keeps its chair. Until it is put back,
    /// nobody comes, and nothing may end its wait: no key but those of others is taken or cancelled.
    pub fn skip(&mut self, key: WaiterId) -> Skipped {
        self.lanes.skip(&mut self.chairs, key.at);
        Skipped(key)
    }

    /// Puts a waiter back where it stood.
    pub fn restore(&mut self, aside: Skipped) {
        self.lanes.restore(&mut self.chairs, aside.0.at);
    }

    /// The head, and everyone who competes with it for the same slots, in the order in which they would be
    /// served if nobody else came. O(n log n).
    #[must_use]
    pub fn in_order(&self) -> Vec<WaiterId> {
        let Some(head) = self.head() else {
            return Vec::new();
        };
        let key = |at| WaiterId {
            at,
            seq: self.chairs.place(at).seq,
        };
        let lane = self.chairs.place(head.at).lane;
        let order = self.lanes.forecast(&self.chairs, lane);
        order.into_iter().map(key).collect()
    }

    /// From now on it is known who came first of all who wait. Nobody waits yet.
    pub fn track_oldest(&mut self) {
        self.tracks_oldest = true;
        self.express = None;
    }

    /// When the one who came first of all who wait came, if that is [noted](Self::track_oldest). O(levels).
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let first = self.arrivals.first(&self.chairs)?;
        self.epoch.instant(self.chairs.patience(first).arrival)
    }

    /// Lets nobody in any more. Whoever waits still does.
    pub fn stop_accepting(&mut self) {
        self.closed = true;
    }

    /// Whoever has waited too long by `now` is answered, and whoever has waited long enough rises.
    pub fn keep_time(&mut self, now: Instant, woken: &mut WakeList<W>) {
        self.catch_up(self.epoch.nanos(now), woken);
    }
}
