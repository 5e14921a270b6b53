//! The slots that are kept for each level, and whether they are lent to those below.

use crate::admit::nanos::{NEVER, Nanos};
use crate::admit::{KeptSlots, Reserve, WaitingRoomConfig};

/// The reserves of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Reserves {
    /// By level; empty without reserves.
    levels: Vec<LevelReserve>,
    lend: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct LevelReserve {
    reserve: Option<Reserve>,
    /// When a request of this level or above came last; 0: never.
    latest: Nanos,
}

/// A level lends its slots after this time without a request, in nanoseconds.
const LATELY: Nanos = 10_000_000_000;

impl Reserves {
    pub(crate) fn new(config: &WaitingRoomConfig) -> Self {
        if config.reserve.is_empty() {
            return Self::default();
        }
        let levels = config.levels.names().map(|name| LevelReserve {
            reserve: config
                .reserve
                .iter()
                .find(|(other, _)| other.eq_ignore_ascii_case(name))
                .map(|(_, &reserve)| reserve),
            latest: 0,
        });
        Self {
            levels: levels.collect(),
            lend: config.lend,
        }
    }

    /// The reserves of another configuration, whose levels are taken to be the same.
    pub(crate) fn set_config(&mut self, config: &WaitingRoomConfig) {
        let old = std::mem::replace(self, Self::new(config));
        for (level, old) in self.levels.iter_mut().zip(old.levels) {
            level.latest = old.latest;
        }
    }

    /// A request of this level came.
    #[inline]
    pub(crate) fn on_arrival(&mut self, level: u8, now: Nanos) {
        // What is kept for a level is for those above, too.
        for level in self.levels.iter_mut().skip(level.into()) {
            level.latest = now;
        }
    }

    /// Whether slots are kept for any level.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// When slots that are kept now are lent; `NEVER` if none are.
    pub(crate) fn next_lent(&self, now: Nanos) -> Nanos {
        let kept = self.levels.iter().filter(|level| level.reserve.is_some());
        let lent = kept.map(|level| level.latest.saturating_add(LATELY));
        let next = lent.filter(|&lent| self.lend && lent > now).min();
        next.unwrap_or(NEVER)
    }

    /// The slots that a request of this level has to leave free.
    #[inline]
    pub(crate) fn above(&self, level: u8, now: Nanos) -> KeptSlots {
        let above = self.levels.iter().take(level.into());
        above
            .filter(|above| !self.lend || now.saturating_sub(above.latest) < LATELY)
            .filter_map(|above| above.reserve)
            .fold(KeptSlots::NONE, KeptSlots::and)
    }
}
