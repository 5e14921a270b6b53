//! The counters of a room: its waiters, its reservations, and the requests that got no slot.

use crate::admit::trim::HighWater;
use crate::admit::{RejectReason, RoomStats};

/// The counters of a room.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The number of waiters.
    pub(crate) waiting: usize,
    /// The number of the waiters that are patient and do not count towards `max_size`.
    patient: usize,
    /// The room that is promised to requests that have not arrived yet.
    pub(crate) reserved: usize,
    /// `true` once no more requests are accepted.
    pub(crate) is_closed: bool,
    pub(crate) stats: RoomStats,
    /// The counts of each level, for requests of a known level.
    pub(crate) by_level: Vec<RoomStats>,
    pub(crate) high_water: HighWater,
}

impl Counters {
    pub(super) fn new(levels: usize) -> Self {
        Self {
            by_level: vec![RoomStats::default(); levels],
            ..Self::default()
        }
    }

    /// Moves the counts to the new levels. `old` has the old number of each new level.
    pub(super) fn set_levels(&mut self, old: &[Option<usize>]) {
        let numbers =
            |&old: &Option<usize>| old.map_or_else(RoomStats::default, |old| self.by_level[old]);
        self.by_level = old.iter().map(numbers).collect();
    }

    /// Records that a request of this level was rejected.
    pub(crate) fn on_rejected<N>(&mut self, level: u8, why: &RejectReason<N>) {
        self.stats.reject(why);
        if let Some(level) = self.by_level.get_mut(usize::from(level)) {
            level.reject(why);
        }
    }

    /// Records that the caller of a request of this level left.
    pub(crate) fn on_cancelled(&mut self, level: u8) {
        self.stats.cancelled += 1;
        if let Some(level) = self.by_level.get_mut(usize::from(level)) {
            level.cancelled += 1;
        }
    }

    /// Returns the number of waiters that count towards `max_size`, which are all but the patient ones.
    #[inline]
    pub(crate) fn placed(&self) -> usize {
        self.waiting - self.patient
    }

    /// Records one more waiter.
    #[inline]
    pub(crate) fn on_queued(&mut self, is_patient: bool) {
        self.waiting += 1;
        self.patient += usize::from(is_patient);
        self.high_water.note(self.waiting);
    }

    /// Records one waiter fewer.
    #[inline]
    pub(crate) fn on_unlinked(&mut self, is_patient: bool) {
        self.waiting -= 1;
        self.patient -= usize::from(is_patient);
    }

    /// Records that all waiters are unlinked and will be counted again.
    pub(crate) fn on_all_unlinked(&mut self) {
        (self.waiting, self.patient) = (0, 0);
    }

    /// Returns the number of leases that requests used, out of `leased`.
    pub(crate) fn leases_used(&self, leased: u64) -> u64 {
        leased.saturating_sub(self.stats.unclaimed)
    }
}
