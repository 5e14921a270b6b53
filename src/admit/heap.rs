//! A binary heap with removal and re-ranking of any member in O(log n).
//!
//! The standard heap can remove only its first item. This heap also records the position of each member.

/// The members, which are small dense numbers, each with a rank. The smallest rank is first.
#[derive(Debug)]
pub(crate) struct Heap<K> {
    /// The items in heap order, so the children of `i` are at `2 i + 1` and `2 i + 2`.
    items: Vec<(K, u32)>,
    /// The position in `items` of each member, or `ABSENT`.
    positions: Vec<u32>,
}

/// The position of a number that is not a member.
const ABSENT: u32 = u32::MAX;

impl<K: Ord + Copy> Heap<K> {
    pub(crate) fn new() -> Self {
        Self {
            items: Vec::new(),
            positions: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&(K, u32)> {
        self.items.first()
    }

    pub(crate) fn rank(&self, member: u32) -> Option<K> {
        let pos = *self.positions.get(member as usize)?;
        // `ABSENT` is out of range.
        self.items.get(pos as usize).map(|&(rank, _)| rank)
    }

    /// Adds `member`, or gives it a new rank.
    #[inline]
    pub(crate) fn set(&mut self, member: u32, rank: K) {
        let slot = member as usize;
        if slot >= self.positions.len() {
            self.positions.resize(slot + 1, ABSENT);
        }
        let mut pos = self.positions[slot] as usize;
        if pos == ABSENT as usize {
            pos = self.items.len();
            self.items.push((rank, member));
            self.positions[slot] = pos as u32;
        } else {
            self.items[pos].0 = rank;
        }
        self.sift(pos);
    }

    /// Removes `member`, if it is present.
    pub(crate) fn remove(&mut self, member: u32) {
        let Some(pos) = self.positions.get_mut(member as usize) else {
            return;
        };
        let gap = std::mem::replace(pos, ABSENT) as usize;
        if gap == ABSENT as usize {
            return;
        }
        self.items.swap_remove(gap);
        // The last item fills the gap, unless it was the gap itself.
        if gap < self.items.len() {
            self.positions[self.items[gap].1 as usize] = gap as u32;
            self.sift(gap);
        }
    }

    /// Moves the item at `pos` up or down to where its rank belongs.
    #[inline]
    fn sift(&mut self, pos: usize) {
        // Most groups have only one lane, so this check saves both steps.
        if self.items.len() == 1 {
            return;
        }
        let pos = self.sift_up(pos);
        // This does nothing if the item went up.
        self.sift_down(pos);
    }

    fn sift_up(&mut self, mut pos: usize) -> usize {
        while pos > 0 {
            let parent = (pos - 1) / 2;
            if self.items[parent].0 <= self.items[pos].0 {
                break;
            }
            self.swap(parent, pos);
            pos = parent;
        }
        pos
    }

    fn sift_down(&mut self, mut pos: usize) {
        loop {
            // Finds the least of the item and its two children.
            let mut least = pos;
            for child in [2 * pos + 1, 2 * pos + 2] {
                if child < self.items.len() && self.items[child].0 < self.items[least].0 {
                    least = child;
                }
            }
            if least == pos {
                return;
            }
            self.swap(least, pos);
            pos = least;
        }
    }

    /// Swaps two items, and updates `positions`.
    fn swap(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
        self.positions[self.items[a].1 as usize] = a as u32;
        self.positions[self.items[b].1 as usize] = b as u32;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn first_is_the_least_of_all_members(ops in prop::collection::vec((0u32..20, prop::option::of(0u8..50)), 0..200)) {
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
