//! The slots that are kept for each level, and whether they are lent to those below.

mod lent;

use self::lent::Lent;
use crate::admit::nanos::Nanos;
use crate::admit::{KeptSlots, PoolId, Reserve, WaitingRoomConfig};

/// The reserves of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Reserves {
    /// By level; empty without reserves.
    levels: Vec<LevelReserve>,
    lend: bool,
    /// What lower levels have of them.
    lent: Lent,
}

/// The slots that all these levels keep.
fn kept<'a>(levels: impl IntoIterator<Item = &'a LevelReserve>) -> KeptSlots {
    let reserves = levels.into_iter().filter_map(|level| level.reserve);
    reserves.fold(KeptSlots::NONE, KeptSlots::and)
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
            lent: Lent::default(),
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

    /// The slots that a request of this level has to leave free.
    #[inline]
    pub(crate) fn above(&self, level: u8, now: Nanos) -> KeptSlots {
        let above = self.levels.iter().take(level.into());
        kept(above.filter(|above| !self.lends(above, now)))
    }

    /// Whether the slots of a level may go to those below.
    #[inline]
    fn lends(&self, level: &LevelReserve, now: Nanos) -> bool {
        self.lend && now.saturating_sub(level.latest) > LATELY
    }

    /// Whether slots that are kept may be lent.
    #[inline]
    pub(crate) fn may_lend(&self) -> bool {
        self.lend && !self.levels.is_empty()
    }

    /// A request of this level took a slot of a pool, which has `limit` slots, `free` of them still free.
    pub(crate) fn on_leased(
        &mut self,
        level: u8,
        pool: PoolId,
        (limit, free): (usize, usize),
        now: Nanos,
    ) {
        // Before: one more was free.
        self.lent.settle(pool, self.missing(limit, free + 1));
        let above = &self.levels[..usize::from(level).min(self.levels.len())];
        if kept(above).of(limit) > free {
            // Of those that lend, the lowest.
            let lender = above.iter().enumerate().rev().find(|&(nth, above)| {
                self.lends(above, now) && self.lent.of(pool, nth) < self.kept_for(nth, limit)
            });
            if let Some((lender, _)) = lender {
                self.lent.add(pool, lender, self.levels.len());
            }
        }
    }

    /// How many slots of a pool are kept for this level, and how many of them lower levels have.
    pub(crate) fn status(
        &mut self,
        level: usize,
        pool: PoolId,
        (limit, free): (usize, usize),
    ) -> (usize, usize) {
        self.lent.settle(pool, self.missing(limit, free));
        (self.kept_for(level, limit), self.lent.of(pool, level))
    }

    /// How many slots of a pool are kept and not free.
    fn missing(&self, limit: usize, free: usize) -> usize {
        kept(&self.levels).of(limit).saturating_sub(free)
    }

    /// How many slots of a pool are kept for this level, beside those that are kept for higher ones.
    fn kept_for(&self, level: usize, limit: usize) -> usize {
        let up_to = |level: usize| kept(self.levels.iter().take(level)).of(limit);
        up_to(level + 1) - up_to(level)
    }
}
