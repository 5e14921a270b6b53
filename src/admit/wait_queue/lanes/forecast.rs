//! The order in which waiters would be served if no request arrived.

use std::hash::Hash;

use super::super::super::waiters::Waiters;
use super::super::discipline::forecast;
use super::Lanes;

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// The waiters that compete with those of `lane`, in the order in which they would be served.
    pub(crate) fn forecast<T>(&self, waiters: &Waiters<T>, lane: u32) -> Vec<u32> {
        let group = &self.groups[self.lanes[lane as usize].group as usize];
        let groups = &self.by_pools[&group.pools];
        let of_group = |group: u32, level: usize| {
            let mut flows = Vec::new();
            for (_, &lane) in &self.groups[group as usize].lanes {
                self.lanes[lane as usize].levels[level].snapshot(waiters, &mut flows);
            }
            forecast(waiters, flows, self.dispatches)
        };
        let of_level = |level: usize| {
            let orders = groups.iter().map(|&group| of_group(group, level));
            merge(waiters, orders.collect())
        };
        (0..self.levels).flat_map(of_level).collect()
    }
}

/// The order over all disciplines: of the next waiters of each, the one that arrived first.
fn merge<T>(waiters: &Waiters<T>, orders: Vec<Vec<u32>>) -> Vec<u32> {
    let mut orders: Vec<_> = orders
        .into_iter()
        .map(|order| order.into_iter().peekable())
        .collect();
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
