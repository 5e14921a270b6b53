//! A binary heap whose members can be found again.
//!
//! The standard heap forgets where its members are, so that one that leaves early or changes its rank stays
//! behind as a ghost. This one knows each member's place: change and removal are O(log n).

/// Members are small dense numbers, each with a rank; the smallest rank is first.
#[derive(Debug)]
pub(crate) struct Heap<K> {
    items: Vec<(K, u32)>,
    /// Where in `items` a member is; `ABSENT` if it is not.
    places: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl<K: Ord + Copy> Heap<K> {
    pub(crate) fn new() -> Self {
        Self {
            items: Vec::new(),
            places: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&(K, u32)> {
        self.items.first()
    }

    /// Adds `member`, or gives it a new rank.
    #[inline]
    pub(crate) fn set(&mut self, member: u32, rank: K) {
        let slot = member as usize;
        if slot >= self.places.len() {
            self.places.resize(slot + 1, ABSENT);
        }
        let mut place = self.places[slot] as usize;
        if place == ABSENT as usize {
            place = self.items.len();
            self.items.push((rank, member));
            self.places[slot] = place as u32;
        } else {
            self.items[place].0 = rank;
        }
        self.settle(place);
    }

    /// Takes `member` out, if it is in.
    pub(crate) fn remove(&mut self, member: u32) {
        let Some(place) = self.places.get_mut(member as usize) else {
            return;
        };
        let gap = std::mem::replace(place, ABSENT) as usize;
        if gap == ABSENT as usize {
            return;
        }
        self.items.swap_remove(gap);
        if gap < self.items.len() {
            self.places[self.items[gap].1 as usize] = gap as u32;
            self.settle(gap);
        }
    }

    #[inline]
    fn settle(&mut self, place: usize) {
        // Most groups have one lane.
        if self.items.len() == 1 {
            return;
        }
        let place = self.rise(place);
        self.sink(place);
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.items[parent].0 <= self.items[place].0 {
                break;
            }
            self.swap(parent, place);
            place = parent;
        }
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.items.len() && self.items[child].0 < self.items[least].0 {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.swap(least, place);
            place = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
        self.places[self.items[a].1 as usize] = a as u32;
        self.places[self.items[b].1 as usize] = b as u32;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_first_is_always_the_least(ops in prop::collection::vec((0u32..20, prop::option::of(0u8..50)), 0..200)) {
            let (mut heap, mut model) = (Heap::new(), BTreeMap::new());
            for (member, rank) in ops {
                match rank {
                    Some(rank) => {
                        heap.set(member, (rank, member));
                        model.insert(member, rank);
                    }
                    None => {
                        heap.remove(member);
                        model.remove(&member);
                    }
                }
                let least = model.iter().map(|(&m, &r)| (r, m)).min();
                prop_assert_eq!(heap.first().map(|&(rank, _)| rank), least);
            }
        }
    }
}
