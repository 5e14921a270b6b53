//! How long a waiter waits, and when it rises: both follow from its ticket and how the room is furnished.

use std::time::Instant;

use super::nanos::{Epoch, NEVER, Nanos, span};
use super::room::WaitingRoom;
use super::{Capacity, Rejected, RoomConfig, Ticket};

/// What a ticket says of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) arrival: Nanos,
    /// `NEVER`, if it has none.
    deadline: Nanos,
}

impl Patience {
    #[inline]
    pub(super) fn new(arrival: Nanos, deadline: Option<Instant>, epoch: Epoch) -> Self {
        Self {
            arrival,
            deadline: deadline.map_or(NEVER, |end| epoch.nanos(end)),
        }
    }

    /// When the wait ends.
    #[inline]
    pub(super) fn end(self, config: &RoomConfig) -> Nanos {
        self.longest_wait(config).min(self.deadline)
    }

    pub(super) fn why_expired<N>(self, config: &RoomConfig) -> Rejected<N> {
        if self.deadline < NEVER && self.deadline <= self.longest_wait(config) {
            Rejected::DeadlinePassed
        } else {
            Rejected::TimedOut
        }
    }

    #[inline]
    fn longest_wait(self, config: &RoomConfig) -> Nanos {
        let longest = config.max_wait.map_or(NEVER, span);
        self.arrival.saturating_add(longest)
    }

    /// By how many levels it has risen by `now`.
    fn risen_by(self, now: Nanos, config: &RoomConfig) -> u8 {
        let waited = now.saturating_sub(self.arrival);
        let risen = interval(config).map_or(0, |interval| waited / interval);
        u8::try_from(risen).unwrap_or(u8::MAX)
    }
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// When the wait of a ticket's holder ends, and why.
    pub(crate) fn end_of_wait(&self, ticket: &Ticket) -> Option<(Instant, Rejected<C::Never>)> {
        let arrival = self.epoch.nanos(ticket.arrival);
        let patience = Patience::new(arrival, ticket.deadline, self.epoch);
        let end = self.epoch.instant(patience.end(&self.config))?;
        Some((end, patience.why_expired(&self.config)))
    }

    /// When the waiter rises to the next level, if ever.
    #[inline]
    pub(super) fn rise_of(&self, at: u32) -> Option<Nanos> {
        let interval = interval(&self.config)?;
        let place = self.chairs.place(at);
        let after = interval.saturating_mul(Nanos::from(place.risen()) + 1);
        let arrival = self.chairs.stub(at).patience.arrival;
        let rise = arrival.saturating_add(after);
        (place.level > 0 && rise < NEVER).then_some(rise)
    }

    #[inline]
    pub(super) fn set_rise(&mut self, at: u32) {
        if let Some(rise) = self.rise_of(at) {
            self.rises.set(rise, (at, self.chairs.place(at).seq));
        }
    }

    /// The level that the waiter has risen to by `now`.
    #[inline]
    pub(super) fn level_at(&self, at: u32, now: Nanos) -> u8 {
        let priority = self.chairs.place(at).priority;
        match self.config.promote_after {
            None => priority,
            Some(_) => {
                let patience = self.chairs.stub(at).patience;
                priority.saturating_sub(patience.risen_by(now, &self.config))
            }
        }
    }
}

/// How long a waiter has to wait to rise by a level.
#[inline]
fn interval(config: &RoomConfig) -> Option<Nanos> {
    config
        .promote_after
        .map(span)
        .filter(|&interval| interval > 0)
}
