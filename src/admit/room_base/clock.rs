//! The clock of a room, and the order of arrival that follows from it.

use std::time::Instant;

use crate::admit::Ticket;
use crate::admit::nanos::{Epoch, NEVER, Nanos};
use crate::admit::ordered_queue::ArrivalKey;
use crate::admit::waiters::WaitLimits;

/// The time of the present event, and the keys of waiters in the order of arrival.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The instant of the room's creation, from which all others are measured.
    pub(crate) epoch: Epoch,
    /// The time of the event that is being handled, or the epoch if the caller did not read the clock.
    pub(crate) now: Nanos,
    /// The instant that `now` stands for.
    instant: Instant,
    /// The sequence number of the latest waiter.
    seq: u64,
    /// The latest arrival so far, except for requeued tickets. It is never lowered, so keys grow from waiter to waiter.
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
        // Several events may share one reading of the clock.
        if now != self.instant {
            (self.now, self.instant) = (self.epoch.nanos(now), now);
        }
        self.now
    }

    /// Returns the number of an instant.
    #[inline]
    fn nanos(&self, instant: Instant) -> Nanos {
        // Most tickets arrive at the time of the event.
        match instant == self.instant {
            true => self.now,
            false => self.epoch.nanos(instant),
        }
    }

    /// Returns the bounds of a request's wait. An arrival after `now` counts as `now`, because a ticket from the future
    /// could otherwise wait for longer than `max_wait`.
    #[inline]
    pub(crate) fn limits(&self, ticket: &Ticket, now: Nanos) -> WaitLimits {
        let arrival = ticket.arrival.map_or(now, |arrival| self.nanos(arrival));
        WaitLimits {
            arrival: arrival.min(now),
            deadline: ticket.deadline.map_or(NEVER, |end| self.epoch.nanos(end)),
        }
    }

    /// Returns the key in the order of arrival for a request that is queued now.
    ///
    /// Threads read the clock outside the lock, and tickets may come from another process, so a later waiter may name
    /// an earlier arrival. An arrival is therefore raised to the latest one so far, which makes the order of arrival
    /// the order of queueing. Only a requeued ticket keeps the arrival that it names.
    #[inline]
    pub(crate) fn next_key(&mut self, ticket: &Ticket, limits: WaitLimits) -> ArrivalKey {
        let key = self.key_if_queued(ticket, limits);
        self.seq = key.1;
        // A requeued ticket may go back in time, and an early retry goes behind all. Later tickets must not follow
        // either of them.
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

/// The offset that is added to the arrival of a retry that came too early, so that it goes behind all first attempts.
/// Instants are smaller than the offset, and the sum does not overflow.
pub(crate) const BEHIND: Nanos = 1 << 63;

/// Returns a ticket's position in the order of arrival. A client that came back too early goes behind all others.
#[inline]
fn behind(since: Nanos, ticket: &Ticket) -> Nanos {
    since + if ticket.client_retry { BEHIND } else { 0 }
}

/// Returns the position in the order of arrival that a replaced ticket gives its waiter. The waiter counts as requeued,
/// even if the new ticket is not.
pub(crate) fn new_place(ticket: &Ticket, limits: WaitLimits) -> Nanos {
    behind(limits.arrival, ticket)
}

/// Returns `true` if a ticket keeps its original position in the order, which requires that it names its arrival.
#[inline]
pub(crate) fn is_requeued(ticket: &Ticket) -> bool {
    ticket.requeued && ticket.arrival.is_some()
}
