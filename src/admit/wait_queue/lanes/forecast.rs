//! The forecast: the order in which waiters would be served if no other request arrived.

use std::hash::Hash;

use super::Lanes;
use crate::admit::wait_queue::discipline::forecast;
use crate::admit::waiters::Waiters;

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// The waiters that compete with those of `lane`, in the order in which they would be served. O(n log n).
    pub(crate) fn forecast<T>(&self, waiters: &Waiters<T>, lane: u32) -> Vec<u32> {
        let group = &self.groups[self.lanes[lane as usize].group as usize];
        // One for each discipline.
        // Groups that share only some of the pools are left out: how they alternate depends on which slot comes back.
        let groups = &self.by_pools[&group.pools];
        let of_group = |group: u32, level: usize| {
            let mut flows = Vec::new();
            for (_, &lane) in &self.groups[group as usize].lanes {
                self.lanes[lane as usize].levels[level].snapshot(waiters, &mut flows);
            }
            forecast(waiters, flows, self.dispatches)
        };
        if self.is_weighted {
            // No level goes before another, but within the groups that have a queue for each.
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
        // A higher level goes first, whatever its discipline.
        (0..self.levels).flat_map(of_level).collect()
    }

    /// Merges the orders of several disciplines: of their next waiters, the one that arrived first goes first; or last,
    /// newest first.
    fn merge<T>(&self, waiters: &Waiters<T>, orders: Vec<Vec<u32>>) -> Vec<u32> {
        let mut orders: Vec<_> = orders
            .into_iter()
            .map(|order| order.into_iter().peekable())
            .collect();
        // Ends when all orders are used up.
        std::iter::from_fn(|| {
            let next = orders.iter_mut().filter_map(|order| {
                let key = waiters.meta(*order.peek()?).key();
                Some((self.age_order.key(key), order))
            });
            let (_, first) = next.min_by_key(|&(key, _)| key)?;
            first.next()
        })
        .collect()
    }
}
