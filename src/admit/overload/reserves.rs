//! The slots that are reserved for each level, and that may be lent to the levels below.

use std::collections::HashMap;

use crate::admit::nanos::{NEVER, Nanos};
use crate::admit::{KeptSlots, PoolId, ReservedSlots, WaitingRoomConfig};

/// The reserved slots of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Reserves {
    /// The reserve of each level. The list is empty if the configuration reserves no slots.
    levels: Vec<LevelReserve>,
    lend: bool,
    /// `true` if a waiter was promoted since reserved slots were last offered to waiters. It may use the slots of its
    /// new level.
    promoted: bool,
    /// The reserved slots that requests of lower levels hold.
    lent: Lent,
}

/// Returns the slots that all these levels reserve together.
fn kept<'a>(levels: impl IntoIterator<Item = &'a LevelReserve>) -> KeptSlots {
    let reserves = levels.into_iter().filter_map(|level| level.reserve);
    reserves.fold(KeptSlots::NONE, KeptSlots::and)
}

#[derive(Debug, Clone, Copy, Default)]
struct LevelReserve {
    reserve: Option<ReservedSlots>,
    /// The instant at which the latest request of this level or above arrived; 0 before the first.
    latest: Nanos,
    /// `true` if this level's slots were offered to waiters after that instant.
    is_offered: bool,
}

impl LevelReserve {
    /// Returns the instant from which on this level's slots have to be offered to waiters. `NEVER` if the level
    /// reserves no slots or lends them all the time.
    fn lends_from(&self) -> Nanos {
        match self.reserve.is_some() && self.latest > 0 && !self.is_offered {
            // This is the first instant at which `lends` is true, which asks for more than `LATELY`.
            true => self.latest.saturating_add(LATELY + 1),
            false => NEVER,
        }
    }
}

/// The time without a request after which a level lends its slots, in nanoseconds.
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

    /// Records the arrival of a request of this level.
    #[inline]
    pub(crate) fn on_arrival(&mut self, level: u8, now: Nanos) {
        // Slots that are reserved for a level serve the levels above it, too, so all levels from this one down were
        // asked for.
        for level in self.levels.iter_mut().skip(level.into()) {
            (level.latest, level.is_offered) = (now, false);
        }
    }

    /// Records the promotion of a waiter.
    #[inline]
    pub(crate) fn on_promoted(&mut self) {
        self.promoted = !self.is_empty();
    }

    /// Returns the instant at which reserved slots have to be offered to waiters, because a level begins to lend them
    /// or a waiter was promoted. `NEVER` if both are out of sight.
    pub(crate) fn next_offer(&self) -> Nanos {
        match (self.promoted, self.lend) {
            (true, _) => Some(0),
            (false, true) => self.levels.iter().map(LevelReserve::lends_from).min(),
            (false, false) => None,
        }
        .unwrap_or(NEVER)
    }

    /// Returns `true` if waiters may use reserved slots at `now` that they were not offered before. The caller has to
    /// offer them.
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

    /// Takes over from `old` the instants of the latest requests. `level_of` finds the old number of a level by its
    /// name.
    pub(crate) fn go_on_from(&mut self, old: &Self, level_of: impl Fn(usize) -> Option<usize>) {
        for (nth, level) in self.levels.iter_mut().enumerate() {
            let old = level_of(nth).and_then(|nth| old.levels.get(nth));
            level.latest = old.map_or(0, |old| old.latest);
        }
    }

    /// Returns `true` if the configuration reserves no slots.
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

    /// Returns `true` if a level's slots may go to lower levels.
    #[inline]
    fn lends(&self, level: &LevelReserve, now: Nanos) -> bool {
        self.lend && now.saturating_sub(level.latest) > LATELY
    }

    /// Returns `true` if reserved slots may be lent at some time.
    #[inline]
    pub(crate) fn may_lend(&self) -> bool {
        self.lend && !self.levels.is_empty()
    }

    /// Records that a request of this level took a slot of a pool, which has `limit` slots and `free` of them still
    /// free.
    pub(crate) fn on_leased(
        &mut self,
        level: u8,
        pool: PoolId,
        (limit, free): (usize, usize),
        now: Nanos,
    ) {
        // One more slot was free before this lease.
        self.lent.settle(pool, self.missing(limit, free + 1));
        let above = &self.levels[..usize::from(level).min(self.levels.len())];
        // If fewer slots stay free than are reserved above this level, the request took a reserved one.
        if kept(above).of(limit) > free {
            // The lowest of the levels that lend counts as the lender.
            let lender = above.iter().enumerate().rev().find(|&(nth, above)| {
                self.lends(above, now) && self.lent.of(pool, nth) < self.kept_for(nth, limit)
            });
            if let Some((lender, _)) = lender {
                self.lent.add(pool, lender, self.levels.len());
            }
        }
    }

    /// Returns the number of a pool's slots that are reserved for this level, and the number of them that lower levels
    /// hold.
    pub(crate) fn status(
        &mut self,
        level: usize,
        pool: PoolId,
        (limit, free): (usize, usize),
    ) -> (usize, usize) {
        self.lent.settle(pool, self.missing(limit, free));
        let kept = self.kept_for(level, limit);
        // After the limit was lowered, fewer slots may be reserved than are lent.
        (kept, self.lent.of(pool, level).min(kept))
    }

    /// Returns the number of a pool's reserved slots that are busy.
    fn missing(&self, limit: usize, free: usize) -> usize {
        // The last level has no lower levels to reserve slots from, so its own reserve is left out.
        let above = self.levels.split_last().map_or(&[][..], |(_, above)| above);
        kept(above).of(limit).saturating_sub(free)
    }

    /// Returns the number of a pool's slots that are reserved for this level, on top of those for higher levels.
    fn kept_for(&self, level: usize, limit: usize) -> usize {
        let up_to = |level: usize| kept(self.levels.iter().take(level)).of(limit);
        // Computed as a difference, because shares are summed before they are rounded. It can't be below 0, because
        // more levels reserve at least as many slots.
        up_to(level + 1) - up_to(level)
    }
}

/// The numbers of lent slots, by pool and by the level that lends them.
///
/// A lease does not record the level of its request, so a slot counts as lent if, when it is taken, it leaves fewer
/// slots free than are reserved. At most as many slots are lent as reserved slots are busy, so the count goes down when
/// a returned slot stays free. A returned slot is missed if it does not stay free, because a request of its own level
/// takes it at once, or because more slots are taken than the pool still has.
#[derive(Debug, Default)]
struct Lent(HashMap<PoolId, Box<[usize]>>);

impl Lent {
    /// Records that `level`, one of `levels`, lends a slot of `pool`.
    fn add(&mut self, pool: PoolId, level: usize, levels: usize) {
        let by_level = self.0.entry(pool);
        by_level.or_insert_with(|| vec![0; levels].into())[level] += 1;
    }

    /// Returns the number of a level's slots in `pool` that are lent.
    fn of(&self, pool: PoolId, level: usize) -> usize {
        let by_level = self.0.get(&pool);
        // The index is in range, because another configuration begins with an empty map.
        by_level.map_or(0, |by_level| by_level[level])
    }

    /// Lowers the number of lent slots of `pool` to `most`. The highest level counts as the first to get its slots
    /// back.
    fn settle(&mut self, pool: PoolId, most: usize) {
        let Some(by_level) = self.0.get_mut(&pool) else {
            return;
        };
        let mut returned = by_level.iter().sum::<usize>().saturating_sub(most);
        for lent in by_level.iter_mut() {
            let of_level = returned.min(*lent);
            *lent -= of_level;
            returned -= of_level;
        }
    }
}
