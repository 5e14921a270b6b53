//! The reserved slots that requests of lower levels hold.
//!
//! A lease does not record the level of its request, so a lent slot is counted when it is taken. It counts as lent if
//! it left fewer slots free than are reserved.
//!
//! At most as many slots are lent as reserved slots are busy, so the count goes down when a returned slot stays free. A
//! returned slot that does not stay free is missed. This happens if several slots are reserved and a request of their
//! own level takes the slot at once, or if more slots are taken than the pool still has.

use std::collections::HashMap;

use crate::admit::PoolId;

/// The numbers of lent slots, by pool and by the level that lends them.
#[derive(Debug, Default)]
pub(super) struct Lent(HashMap<PoolId, Box<[usize]>>);

impl Lent {
    /// Records that `level`, one of `levels`, lends a slot of `pool`.
    pub(super) fn add(&mut self, pool: PoolId, level: usize, levels: usize) {
        let by_level = self.0.entry(pool);
        by_level.or_insert_with(|| vec![0; levels].into())[level] += 1;
    }

    /// Returns the number of a level's slots in `pool` that are lent.
    pub(super) fn of(&self, pool: PoolId, level: usize) -> usize {
        let by_level = self.0.get(&pool);
        // The index is in range, because another configuration begins with an empty map.
        by_level.map_or(0, |by_level| by_level[level])
    }

    /// Lowers the number of lent slots of `pool` to `most`. The highest level counts as the first to get its slots
    /// back.
    pub(super) fn settle(&mut self, pool: PoolId, most: usize) {
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
