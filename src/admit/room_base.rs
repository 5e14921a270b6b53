//! The bound, the clock and the counters of a waiting room: what both rooms and a [`RequestQueue`] share.
//!
//! [`RequestQueue`]: https://docs.rs/tower-triage/latest/tower_triage/batch/struct.RequestQueue.html

use std::time::{Duration, Instant};

use super::departure_rate::DepartureRate;
use super::nanos::{Epoch, NEVER, Nanos, span};
use super::ordered_queue::ArrivalKey;
use super::trim::HighWater;
use super::waiters::WaitLimits;
use super::{RejectReason, RoomStats, Ticket, WaitingRoomConfig};

/// What every waiting room has, whatever its order.
#[derive(Debug)]
pub(crate) struct RoomBase {
    pub(crate) config: WaitingRoomConfig,
    /// What instants are measured from: when the room was made.
    pub(crate) epoch: Epoch,
    /// How many wait.
    pub(crate) waiting: usize,
    /// Places promised to requests that have not arrived.
    pub(crate) reserved: usize,
    pub(crate) is_closed: bool,
    pub(crate) stats: RoomStats,
    pub(crate) departures: DepartureRate,
    pub(crate) high_water: HighWater,
    /// The sequence number of the latest waiter.
    seq: u64,
    /// The latest arrival so far, those of requeued tickets aside. Never lowered, so keys grow from waiter to waiter.
    latest: Nanos,
}

impl RoomBase {
    pub(crate) fn new(config: WaitingRoomConfig, now: Instant) -> Self {
        Self {
            config,
            epoch: Epoch(now),
            waiting: 0,
            reserved: 0,
            is_closed: false,
            stats: RoomStats::default(),
            departures: DepartureRate::default(),
            high_water: HighWater::default(),
            seq: 0,
            latest: 0,
        }
    }

    /// How long a request may wait; `NEVER` without a bound.
    pub(crate) fn max_wait(&self) -> Nanos {
        self.config.max_wait.map_or(NEVER, span)
    }

    /// Whether one more request may wait.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.waiting + self.reserved < self.config.max_size
    }

    /// Whether every place is taken, and no ticket could change that: then an arrival that finds no slot is rejected as
    /// [`RejectReason::Full`] before its ticket is read. A full partition is the same reason, so it need not be known.
    pub(crate) fn is_full_for_all(&self) -> bool {
        // A higher priority may displace a waiter; a tenant's own bound is another reason.
        let depends_on_ticket = self.config.displace || self.config.max_size_per_tenant.is_some();
        // Without a waiter all places are reserved, or `max_size` is 0, which is another reason.
        self.waiting > 0 && !depends_on_ticket && !self.has_room()
    }

    /// Reserves a place for a request that will arrive, if one is free.
    pub(crate) fn reserve(&mut self) -> bool {
        let is_free = self.has_room();
        // Not for a partition or a tenant: those are not known yet.
        self.reserved += usize::from(is_free);
        is_free
    }

    /// How long the request may wait. An arrival after `now` counts as `now`: otherwise a ticket from the future could
    /// wait for longer than `max_wait`.
    #[inline]
    pub(crate) fn limits(&self, ticket: &Ticket, now: Nanos) -> WaitLimits {
        let arrival = ticket
            .arrival
            .map_or(now, |arrival| self.epoch.nanos(arrival));
        WaitLimits {
            arrival: arrival.min(now),
            deadline: ticket.deadline.map_or(NEVER, |end| self.epoch.nanos(end)),
        }
    }

    /// The key of a request that is queued now in the order of arrival.
    ///
    /// Clocks are read outside the lock, and tickets may come from another process, so a later waiter may name an earlier
    /// arrival. Therefore an arrival is raised to the latest one so far: the order of arrival is the order of queueing.
    /// Only a requeued ticket keeps the arrival that it names.
    #[inline]
    pub(crate) fn next_key(&mut self, ticket: &Ticket, limits: WaitLimits) -> ArrivalKey {
        let key = self.key_if_queued(ticket, limits);
        self.seq = key.1;
        // A requeued ticket may go back in time; the others must not follow it.
        if !is_requeued(ticket) {
            self.latest = key.0;
        }
        key
    }

    /// The key that a request would have in the order of arrival if it were queued now.
    pub(crate) fn key_if_queued(&self, ticket: &Ticket, limits: WaitLimits) -> ArrivalKey {
        match is_requeued(ticket) {
            true => (limits.arrival, self.seq + 1),
            false => (self.latest.max(limits.arrival), self.seq + 1),
        }
    }

    /// The reason why this ticket may not wait even in an empty room, if there is one.
    #[inline]
    pub(crate) fn refusal<N>(
        &self,
        ticket: &Ticket,
        limits: WaitLimits,
        now: Nanos,
    ) -> Option<RejectReason<N>> {
        // First: it says most about the configuration.
        if self.config.max_size == 0 {
            return Some(RejectReason::Disabled);
        }
        if !ticket.wait {
            return Some(RejectReason::NotQueued);
        }
        // A wait that has ended already.
        let max_wait = self.max_wait();
        (limits.end(max_wait) <= now).then(|| limits.why_expired(max_wait))
    }

    /// The reason for evicting a waiter from a room that became smaller.
    pub(crate) fn why_evicted<N>(&self) -> RejectReason<N> {
        match self.config.max_size {
            0 => RejectReason::Disabled,
            _ => RejectReason::Full,
        }
    }

    /// The end of the wait of a request with this arrival and deadline, and the reason then. `None` without a bound.
    pub(crate) fn end_of_wait<N>(
        &self,
        arrival: Instant,
        deadline: Option<Instant>,
    ) -> Option<(Instant, RejectReason<N>)> {
        let limits = WaitLimits {
            arrival: self.epoch.nanos(arrival),
            deadline: deadline.map_or(NEVER, |end| self.epoch.nanos(end)),
        };
        let end = self.epoch.instant(limits.end(self.max_wait()))?;
        Some((end, limits.why_expired(self.max_wait())))
    }

    /// The time until `ahead` waiters have left with a slot, by the measured departure rate.
    pub(crate) fn estimated_wait(&self, ahead: usize) -> Option<Duration> {
        self.departures.wait_for(ahead)
    }

    /// A request found no slot: measures the departure rate, as the clock was read anyway.
    pub(crate) fn observe_departures(&mut self, now: Nanos) {
        // Before the request is counted: the room was idle up to now.
        if self.waiting == 0 {
            self.departures.room_was_empty(now);
        }
        self.departures.observe(now);
    }

    /// One more request waits.
    #[inline]
    pub(crate) fn on_queued(&mut self) {
        self.waiting += 1;
        self.high_water.note(self.waiting);
    }
}

impl WaitLimits {
    /// The reason for which a wait ends at its [end](Self::end).
    pub(crate) fn why_expired<N>(self, max_wait: Nanos) -> RejectReason<N> {
        let end = self.end(max_wait);
        // Where both end at the same instant, the deadline is the reason.
        if self.deadline == end && end < NEVER {
            RejectReason::DeadlinePassed
        } else {
            RejectReason::TimedOut
        }
    }
}

/// Whether a ticket keeps its original place in the order: only if it says when it arrived.
#[inline]
pub(crate) fn is_requeued(ticket: &Ticket) -> bool {
    ticket.requeued && ticket.arrival.is_some()
}
