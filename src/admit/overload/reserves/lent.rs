//! The kept slots that lower levels have.
//!
//! A lease does not say of which level its request is, so this is counted when the slot is taken: it was lent if it left
//! fewer slots free than are kept. No more are lent than kept slots are missing, so those that come back are counted down
//! where they stay free. What does not stay free is not seen: one of several that goes to its own level at once, and one
//! that comes back while more are taken than the pool still has.

use std::collections::HashMap;

use crate::admit::PoolId;

/// By pool, and by the level that lends.
#[derive(Debug, Default)]
pub(super) struct Lent(HashMap<PoolId, Box<[usize]>>);

impl Lent {
    /// A slot of `pool` is lent by this one of so many levels.
    pub(super) fn add(&mut self, pool: PoolId, level: usize, levels: usize) {
        let by_level = self.0.entry(pool);
        by_level.or_insert_with(|| vec![0; levels].into())[level] += 1;
    }

    /// How many of a level's slots in `pool` are lent.
    pub(super) fn of(&self, pool: PoolId, level: usize) -> usize {
        let by_level = self.0.get(&pool);
        // In range: another configuration begins with an empty map.
        by_level.map_or(0, |by_level| by_level[level])
    }

    /// No more than so many slots of `pool` are lent now: the others came back, to the highest level first.
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
