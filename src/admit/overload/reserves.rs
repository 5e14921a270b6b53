//! The slots that are kept for each level, and whether they are lent to those below.

mod lent;

use self::lent::Lent;
use crate::admit::nanos::{NEVER, Nanos};
use crate::admit::{KeptSlots, PoolId, ReservedSlots, WaitingRoomConfig};

/// The reserves of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Reserves {
    /// By level; empty without reserves.
    levels: Vec<LevelReserve>,
    lend: bool,
    /// `true` if a waiter was promoted since waiters were last offered kept slots: it may use those of its new level.
    promoted: bool,
    /// The kept slots that lower levels have.
    lent: Lent,
}

/// The slots that all these levels keep.
fn kept<'a>(levels: impl IntoIterator<Item = &'a LevelReserve>) -> KeptSlots {
    let reserves = levels.into_iter().filter_map(|level| level.reserve);
    reserves.fold(KeptSlots::NONE, KeptSlots::and)
}

#[derive(Debug, Clone, Copy, Default)]
struct LevelReserve {
    reserve: Option<ReservedSlots>,
    /// The time at which a request of this level or above came last; 0: never.
    latest: Nanos,
    /// `true` if waiters were offered its slots since then.
    is_offered: bool,
}

impl LevelReserve {
    /// Returns the time at which waiters are to be offered its slots; `NEVER` if the level reserves no slots or lends them all
    /// the time.
    fn lends_from(&self) -> Nanos {
        match self.reserve.is_some() && self.latest > 0 && !self.is_offered {
            // The first instant at which `lends` is true, which asks for more than `LATELY`.
            true => self.latest.saturating_add(LATELY + 1),
            false => NEVER,
        }
    }
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
            is_offered: false,
        });
        Self {
            levels: levels.collect(),
            lend: config.lend,
            promoted: false,
            lent: Lent::default(),
        }
    }

    /// Records that a request of this level came.
    #[inline]
    pub(crate) fn on_arrival(&mut self, level: u8, now: Nanos) {
        // What is kept for a level is for those above, too.
        for level in self.levels.iter_mut().skip(level.into()) {
            (level.latest, level.is_offered) = (now, false);
        }
    }

    /// Records that a waiter was promoted.
    #[inline]
    pub(crate) fn on_promoted(&mut self) {
        self.promoted = !self.is_empty();
    }

    /// Returns the time at which waiters are to be offered kept slots, because a level begins to lend them, or a waiter was
    /// promoted. `NEVER` if neither is known to come.
    pub(crate) fn next_offer(&self) -> Nanos {
        match (self.promoted, self.lend) {
            (true, _) => Some(0),
            (false, true) => self.levels.iter().map(LevelReserve::lends_from).min(),
            (false, false) => None,
        }
        .unwrap_or(NEVER)
    }

    /// Returns `true` if waiters may use kept slots at `now` that they were not offered. The caller has to offer them.
    pub(crate) fn begin_offer(&mut self, now: Nanos) -> bool {
        if self.next_offer() > now {
            return false;
        }
        self.promoted = false;
        for level in &mut self.levels {
            level.is_offered |= level.lends_from() <= now;
        }
        true
    }

    /// Takes over from `old` when the levels, by name, were last asked for.
    pub(crate) fn go_on_from(&mut self, old: &Self, level_of: impl Fn(usize) -> Option<usize>) {
        for (nth, level) in self.levels.iter_mut().enumerate() {
            let old = level_of(nth).and_then(|nth| old.levels.get(nth));
            level.latest = old.map_or(0, |old| old.latest);
        }
    }

    /// Returns `true` if slots are kept for no level.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Returns the slots that a request of this level has to leave free.
    #[inline]
    pub(crate) fn above(&self, level: u8, now: Nanos) -> KeptSlots {
        let above = self.levels.iter().take(level.into());
        kept(above.filter(|above| !self.lends(above, now)))
    }

    /// Returns `true` if the slots of a level may go to those below.
    #[inline]
    fn lends(&self, level: &LevelReserve, now: Nanos) -> bool {
        self.lend && now.saturating_sub(level.latest) > LATELY
    }

    /// Returns `true` if slots that are kept may be lent.
    #[inline]
    pub(crate) fn may_lend(&self) -> bool {
        self.lend && !self.levels.is_empty()
    }

    /// Records that a request of this level took a slot of a pool, which has `limit` slots, `free` of them still free.
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
        // Fewer slots stay free than are kept above this level: it took one of those.
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

    /// Returns the number of slots of a pool that are kept for this level, and the number of them that lower levels have.
    pub(crate) fn status(
        &mut self,
        level: usize,
        pool: PoolId,
        (limit, free): (usize, usize),
    ) -> (usize, usize) {
        self.lent.settle(pool, self.missing(limit, free));
        let kept = self.kept_for(level, limit);
        // Fewer may be kept than were, where the limit was lowered.
        (kept, self.lent.of(pool, level).min(kept))
    }

    /// Returns the number of slots of a pool that are kept and not free.
    fn missing(&self, limit: usize, free: usize) -> usize {
        // No level is below the last: from that, none is kept.
        let above = self.levels.split_last().map_or(&[][..], |(_, above)| above);
        kept(above).of(limit).saturating_sub(free)
    }

    /// Returns the number of slots of a pool that are kept for this level, beside those that are kept for higher ones.
    fn kept_for(&self, level: usize, limit: usize) -> usize {
        let up_to = |level: usize| kept(self.levels.iter().take(level)).of(limit);
        // A difference, because shares are summed before they are rounded. More levels never keep fewer slots.
        up_to(level + 1) - up_to(level)
    }
}
