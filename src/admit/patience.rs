//! How long a waiter waits, and when it rises: both follow from its ticket and how the room is furnished.

use std::time::Instant;

use super::nanos::{Epoch, NEVER, Nanos, span};
use super::room::WaitingRoom;
use super::{Capacity, RejectReason, WaitingRoomConfig};

/// What a ticket says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// `NEVER`, as long as it is not known.
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

    /// What everyone has of whom nothing is known.
    pub(super) const UNDATED: Self = Self {
        arrival: NEVER,
        deadline: NEVER,
    };

    /// If its holder's arrival is not known, or is still to come, it was now.
    pub(super) fn date(&mut self, now: Nanos) {
        self.arrival = self.arrival.min(now);
    }

    /// What everyone has who arrived then.
    #[inline]
    pub(super) fn of_all(arrival: Nanos) -> Self {
        Self {
            arrival,
            deadline: NEVER,
        }
    }

    /// When the wait ends, where nobody waits for longer than `longest`.
    #[inline]
    pub(super) fn end(self, longest: Nanos) -> Nanos {
        self.arrival.saturating_add(longest).min(self.deadline)
    }

    pub(super) fn why_expired<N>(self, longest: Nanos) -> RejectReason<N> {
        let end = self.end(longest);
        if self.deadline == end && end < NEVER {
            RejectReason::DeadlinePassed
        } else {
            RejectReason::TimedOut
        }
    }

    /// By how many levels it has risen by `now`.
    fn risen_by(self, now: Nanos, config: &WaitingRoomConfig) -> u8 {
        let waited = now.saturating_sub(self.arrival);
        let risen = interval(config).map_or(0, |interval| waited / interval);
        u8::try_from(risen).unwrap_or(u8::MAX)
    }
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// When the wait ends of one who arrived then and has this deadline of its own, and why.
    pub(crate) fn end_of_wait(
        &self,
        arrival: Instant,
        deadline: Option<Instant>,
    ) -> Option<(Instant, RejectReason<C::Unservable>)> {
        let patience = Patience::new(self.epoch.nanos(arrival), deadline, self.epoch);
        let end = self.epoch.instant(patience.end(self.chairs.longest_wait))?;
        Some((end, patience.why_expired(self.chairs.longest_wait)))
    }

    /// When the waiter rises to the next level, if ever.
    #[inline]
    pub(super) fn rise_of(&self, at: u32) -> Option<Nanos> {
        let interval = interval(&self.config)?;
        let place = self.chairs.place(at);
        let after = interval.saturating_mul(Nanos::from(place.risen()) + 1);
        let arrival = self.chairs.patience(at).arrival;
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
                let patience = self.chairs.patience(at);
                priority.saturating_sub(patience.risen_by(now, &self.config))
            }
        }
    }
}

/// How long anybody waits.
pub(super) fn longest_wait(config: &WaitingRoomConfig) -> Nanos {
    config.max_wait.map_or(NEVER, span)
}

/// How long a waiter has to wait to rise by a level.
#[inline]
fn interval(config: &WaitingRoomConfig) -> Option<Nanos> {
    config
        .promote_after
        .map(span)
        .filter(|&interval| interval > 0)
}
