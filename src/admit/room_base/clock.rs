//! The clock of a room, and the order of arrival by it.

use std::time::Instant;

use crate::admit::Ticket;
use crate::admit::nanos::{Epoch, NEVER, Nanos};
use crate::admit::ordered_queue::ArrivalKey;
use crate::admit::waiters::WaitLimits;

/// The time of the present event, and the keys of waiters in the order of arrival.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The instant from which all others are measured: when the room was made.
    pub(crate) epoch: Epoch,
    /// The time of the event that is being handled; the epoch if the caller did not read the clock.
    pub(crate) now: Nanos,
    /// The instant that `now` is the number of.
    instant: Instant,
    /// The sequence number of the latest waiter.
    seq: u64,
    /// The latest arrival so far, those of requeued tickets aside. Never lowered, so keys grow from waiter to waiter.
    latest: Nanos,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        let epoch = Epoch(now);
        Self {
            now: epoch.nanos(now),
            instant: now,
            epoch,
            seq: 0,
            latest: 0,
        }
    }

    /// Begins an event, and returns its time as a number.
    #[inline]
    pub(crate) fn set_now(&mut self, now: Instant) -> Nanos {
        // Several events may be handled at one reading of the clock.
        if now != self.instant {
            (self.now, self.instant) = (self.epoch.nanos(now), now);
        }
        self.now
    }

    /// Returns the number of an instant.
    #[inline]
    fn nanos(&self, instant: Instant) -> Nanos {
        // Most tickets say that they arrive at the time of the event.
        match instant == self.instant {
            true => self.now,
            false => self.epoch.nanos(instant),
        }
    }

    /// Returns what bounds the wait of a request. An arrival after `now` counts as `now`: otherwise a ticket from the future
    /// could wait for longer than `max_wait`.
    #[inline]
    pub(crate) fn limits(&self, ticket: &Ticket, now: Nanos) -> WaitLimits {
        let arrival = ticket.arrival.map_or(now, |arrival| self.nanos(arrival));
        WaitLimits {
            arrival: arrival.min(now),
            deadline: ticket.deadline.map_or(NEVER, |end| self.epoch.nanos(end)),
        }
    }

    /// Returns the key of a request that is queued now in the order of arrival.
    ///
    /// Clocks are read outside the lock, and tickets may come from another process, so a later waiter may name an earlier
    /// arrival. Therefore an arrival is raised to the latest one so far: the order of arrival is the order of queueing.
    /// Only a requeued ticket keeps the arrival that it names.
    #[inline]
    pub(crate) fn next_key(&mut self, ticket: &Ticket, limits: WaitLimits) -> ArrivalKey {
        let key = self.key_if_queued(ticket, limits);
        self.seq = key.1;
        // A requeued ticket may go back in time, and an early retry is behind all; the others must not follow them.
        if !is_requeued(ticket) && !ticket.client_retry {
            self.latest = key.0;
        }
        key
    }

    /// Returns the key that a request would have in the order of arrival if it were queued now.
    #[inline]
    pub(crate) fn key_if_queued(&self, ticket: &Ticket, limits: WaitLimits) -> ArrivalKey {
        let since = match is_requeued(ticket) {
            true => limits.arrival,
            false => self.latest.max(limits.arrival),
        };
        (behind(since, ticket), self.seq + 1)
    }
}

/// Added to the arrival of a retry that came too early: it goes behind all first attempts. Instants are below this, and
/// the sum does not overflow.
pub(crate) const BEHIND: Nanos = 1 << 63;

/// Returns a ticket's place in the order of arrival: behind all others, if its client came back too early.
#[inline]
fn behind(since: Nanos, ticket: &Ticket) -> Nanos {
    since + if ticket.client_retry { BEHIND } else { 0 }
}

/// Returns the place in the order of arrival that another ticket gives a waiter: that of a requeued request, whatever the
/// ticket says of that.
pub(crate) fn new_place(ticket: &Ticket, limits: WaitLimits) -> Nanos {
    behind(limits.arrival, ticket)
}

/// Returns `true` if a ticket keeps its original place in the order: only if it says when it arrived.
#[inline]
pub(crate) fn is_requeued(ticket: &Ticket) -> bool {
    ticket.requeued && ticket.arrival.is_some()
}
