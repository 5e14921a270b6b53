//! In which order all would be served if nobody else came.

use std::hash::Hash;

use super::super::chairs::Chairs;
use super::super::discipline::forecast;
use super::Lanes;

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// The waiters that compete with those of `lane`, in the order in which they would be served.
    pub(crate) fn forecast<T>(&self, chairs: &Chairs<T>, lane: u32) -> Vec<u32> {
        let group = &self.groups[self.lanes[lane as usize].group as usize];
        let groups = &self.by_pools[&group.pools];
        let of_group = |group: u32, level: usize| {
            let mut strands = Vec::new();
            for (_, &lane) in &self.groups[group as usize].lanes {
                self.lanes[lane as usize].levels[level].strands(chairs, &mut strands);
            }
            forecast(chairs, strands, self.turns)
        };
        let of_level = |level: usize| {
            let orders = groups.iter().map(|&group| of_group(group, level));
            merge(chairs, orders.collect())
        };
        (0..self.levels).flat_map(of_level).collect()
    }
}

/// The order over all disciplines, of the orders within each: whoever came first of the next of each.
fn merge<T>(chairs: &Chairs<T>, orders: Vec<Vec<u32>>) -> Vec<u32> {
    let mut orders: Vec<_> = orders
        .into_iter()
        .map(|order| order.into_iter().peekable())
        .collect();
    let came = |next: Option<&u32>| next.map(|&at| chairs.place(at).came());
    std::iter::from_fn(|| {
        let waiting = orders.iter_mut().filter_map(|order| {
            let came = came(order.peek())?;
            Some((came, order))
        });
        let (_, first) = waiting.min_by_key(|&(came, _)| came)?;
        first.next()
    })
    .collect()
}
