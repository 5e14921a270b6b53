//! The forecast, which is the order in which waiters would be served if all arrivals stopped.

use std::hash::Hash;

use super::Lanes;
use crate::admit::wait_queue::discipline::forecast;
use crate::admit::waiters::Waiters;

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// Returns the waiters that compete with those of `lane`, in the order in which they would be served. This takes
    /// O(n log n).
    pub(crate) fn forecast<T>(&self, waiters: &Waiters<T>, lane: u32) -> Vec<u32> {
        let group = &self.groups[self.lanes[lane as usize].group as usize];
        // There is one group for each discipline. Groups that share only some of the pools are left out, because their
        // turns depend on the slots that come back.
        let groups = &self.by_pools[&group.pools];
        let of_group = |group: u32, level: usize| {
            let mut flows = Vec::new();
            for (_, &lane) in &self.groups[group as usize].lanes {
                self.lanes[lane as usize].levels[level].snapshot(waiters, &mut flows);
            }
            forecast(waiters, flows, self.dispatches)
        };
        if self.weights.have_levels() {
            // With weights, levels are ordered only within groups that have a queue for each of them.
            let orders = groups.iter().map(|&group| {
                let levels = 0..self.groups[group as usize].waiting.len();
                levels.flat_map(|level| of_group(group, level)).collect()
            });
            return self.merge(waiters, orders.collect());
        }
        let of_level = |level: usize| {
            let orders = groups.iter().map(|&group| of_group(group, level));
            self.merge(waiters, orders.collect())
        };
        // Without weights, a higher level goes first in every discipline.
        (0..self.levels).flat_map(of_level).collect()
    }

    /// Merges the orders of several disciplines. Of their next waiters, the one that arrived first goes first.
    fn merge<T>(&self, waiters: &Waiters<T>, orders: Vec<Vec<u32>>) -> Vec<u32> {
        let mut orders: Vec<_> = orders
            .into_iter()
            .map(|order| order.into_iter().peekable())
            .collect();
        // The iterator ends when all orders are used up.
        std::iter::from_fn(|| {
            let next = orders.iter_mut().filter_map(|order| {
                let key = waiters.meta(*order.peek()?).key();
                Some((key, order))
            });
            let (_, first) = next.min_by_key(|&(key, _)| key)?;
            first.next()
        })
        .collect()
    }
}
