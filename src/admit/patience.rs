//! How long a waiter waits, and when it rises: both follow from its ticket and how the room is furnished.

use std::time::{Duration, Instant};

use super::room::WaitingRoom;
use super::{Capacity, Priority, Rejected, RoomConfig, Ticket};

impl<C: Capacity, W> WaitingRoom<C, W> {
    pub(crate) fn end_of(&self, ticket: &Ticket) -> Option<Instant> {
        let longest = self.longest_wait(ticket);
        match (longest, ticket.deadline) {
            (Some(longest), Some(deadline)) => Some(longest.min(deadline)),
            (one, other) => one.or(other),
        }
    }

    pub(crate) fn why_expired(&self, ticket: &Ticket) -> Rejected<C::Never> {
        let longest = self.longest_wait(ticket);
        match ticket.deadline {
            Some(deadline) if longest.is_none_or(|longest| deadline <= longest) => {
                Rejected::DeadlinePassed
            }
            _ => Rejected::TimedOut,
        }
    }

    fn longest_wait(&self, ticket: &Ticket) -> Option<Instant> {
        ticket.arrival.checked_add(self.config.max_wait?)
    }

    /// When the waiter rises to the next level.
    pub(super) fn rise_of(&self, at: u32) -> Option<Instant> {
        let place = self.chairs.place(at);
        let interval = interval(&self.config)?;
        let steps = u32::try_from(place.risen()).ok()?.checked_add(1)?;
        let after = interval.checked_mul(steps)?;
        (place.level > 0).then(|| place.ticket.arrival.checked_add(after))?
    }

    pub(super) fn set_rise(&mut self, at: u32) {
        if self.config.promote_after.is_none() {
            return;
        }
        if let Some(rise) = self.rise_of(at) {
            self.rises.set(rise, (at, self.chairs.place(at).seq));
        }
    }
}

/// How long a waiter has to wait to rise by a level.
fn interval(config: &RoomConfig) -> Option<Duration> {
    config.promote_after.filter(|interval| !interval.is_zero())
}

/// The level that a ticket has risen to by `now`.
pub(super) fn level_at(config: &RoomConfig, ticket: &Ticket, now: Instant) -> Priority {
    let Some(interval) = interval(config) else {
        return ticket.priority;
    };
    let waited = now.saturating_duration_since(ticket.arrival);
    let risen = waited.as_nanos() / interval.as_nanos();
    Priority(u8::try_from(risen).map_or(0, |risen| ticket.priority.0.saturating_sub(risen)))
}
