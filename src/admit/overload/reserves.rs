//! The slots that are reserved for each level.

use crate::admit::{KeptSlots, ReservedSlots, WaitingRoomConfig};

/// The reserved slots of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Reserves {
    /// The reserve of each level. The list is empty if the configuration reserves no slots.
    levels: Vec<Option<ReservedSlots>>,
    /// `true` if a waiter was promoted since reserved slots were last offered to waiters. It may use the slots of its
    /// new level.
    promoted: bool,
}

impl Reserves {
    pub(crate) fn new(config: &WaitingRoomConfig) -> Self {
        if config.reserve.is_empty() {
            return Self::default();
        }
        let levels = config.levels.names().map(|name| {
            let mut reserves = config.reserve.iter();
            let own = reserves.find(|(other, _)| other.eq_ignore_ascii_case(name));
            own.map(|(_, &reserve)| reserve)
        });
        Self {
            levels: levels.collect(),
            promoted: false,
        }
    }

    /// Records the promotion of a waiter.
    #[inline]
    pub(crate) fn on_promoted(&mut self) {
        self.promoted = !self.is_empty();
    }

    /// Returns `true` if reserved slots have to be offered to waiters, because one of them was promoted.
    pub(crate) fn has_offer(&self) -> bool {
        self.promoted
    }

    /// Returns `true` if waiters may use reserved slots that they were not offered before. The caller has to offer them.
    pub(crate) fn begin_offer(&mut self) -> bool {
        std::mem::take(&mut self.promoted)
    }

    /// Returns `true` if the configuration reserves no slots.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Returns the slots that a request of this level has to leave free.
    #[inline]
    pub(crate) fn above(&self, level: u8) -> KeptSlots {
        self.first(level.into())
    }

    /// Returns the number of a pool's `limit` slots that are reserved for this level, on top of those for higher levels.
    pub(crate) fn of_level(&self, level: usize, limit: usize) -> usize {
        // Computed as a difference, because shares are summed before they are rounded. It can't be below 0, because
        // more levels reserve at least as many slots.
        self.first(level + 1).of(limit) - self.first(level).of(limit)
    }

    /// Returns the slots that the first `count` levels reserve together.
    #[inline]
    fn first(&self, count: usize) -> KeptSlots {
        let reserves = self.levels.iter().take(count).flatten().copied();
        reserves.fold(KeptSlots::NONE, KeptSlots::and)
    }
}
