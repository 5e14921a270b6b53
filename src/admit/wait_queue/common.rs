//! The waiters of a queue, with the state that both orders need: their levels and the ends of their waits.

use super::contention::Contention;
use crate::admit::Ticket;
use crate::admit::by_level::ByLevel;
use crate::admit::nanos::Nanos;
use crate::admit::ordered_queue::List;
use crate::admit::room_base::RoomBase;
use crate::admit::timeouts::Timeouts;
use crate::admit::waiters::{WaitLimits, Waiters};

/// The part of a queue that both orders share.
pub(crate) struct Common<T> {
    pub(crate) base: RoomBase,
    pub(crate) waiters: Waiters<T>,
    pub(crate) by_level: ByLevel,
    pub(crate) timeouts: Timeouts,
    pub(crate) contention: Contention,
}

impl<T> Common<T> {
    pub(super) fn new(base: RoomBase) -> Self {
        Self {
            waiters: Waiters::new(base.bounds()),
            by_level: ByLevel::new(List::Level, base.config.levels.count()),
            timeouts: Timeouts::new(),
            contention: Contention::default(),
            base,
        }
    }

    /// Adds a waiter at its level, counts it, and starts its timeout.
    #[inline]
    pub(super) fn link(&mut self, idx: u32) {
        self.base
            .counters
            .on_queued(self.waiters.meta(idx).is_patient);
        self.timeouts.push(&mut self.waiters, idx);
        self.by_level.push(&mut self.waiters, idx);
    }

    /// Undoes [`link`](Self::link).
    #[inline]
    pub(super) fn unlink(&mut self, idx: u32) {
        self.base
            .counters
            .on_unlinked(self.waiters.meta(idx).is_patient);
        self.timeouts.remove(&mut self.waiters, idx);
        self.by_level.remove(&mut self.waiters, idx);
    }

    /// Gives an unlinked waiter another ticket. Its id stays valid.
    pub(super) fn write_ticket(
        &mut self,
        idx: u32,
        ticket: Ticket,
        limits: WaitLimits,
        now: Nanos,
    ) {
        let priority = self.base.config.levels.clamp(ticket.priority);
        self.waiters.replace_ticket(idx, priority, limits, ticket);
        if self.base.has_slots {
            self.waiters.meta_mut(idx).set_entered(now);
        }
    }

    /// Unlinks all waiters at once, so that the caller can link them again under a new configuration.
    pub(super) fn clear(&mut self) {
        self.waiters.bounds = self.base.bounds();
        self.by_level = ByLevel::new(List::Level, self.base.config.levels.count());
        self.timeouts = Timeouts::new();
        self.contention.stop_all(self.base.clock.now);
        // `link` counts each of them again.
        self.base.counters.on_all_unlinked();
    }

    /// Returns the waiter that goes first in the order of levels.
    #[inline]
    pub(super) fn next_by_level(&self) -> Option<u32> {
        self.by_level.next(&self.waiters)
    }

    /// Returns all waiters in the order of levels, highest level first.
    pub(super) fn all_by_level(&self) -> Vec<u32> {
        let levels = (0..=u8::MAX).take(self.base.config.levels.count());
        levels
            .flat_map(|level| self.by_level.level(&self.waiters, level))
            .collect()
    }
}
