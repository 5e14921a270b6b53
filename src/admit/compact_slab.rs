//! A slab that can shrink even while an entry stays near its end.
//!
//! The `slab` crate hands out the index that was freed last. After a burst this may be a high index for ever. This slab
//! ends with its last entry, and after a [`trim`](CompactSlab::trim) it hands out its lowest indices first, so it is
//! short once the high entry has left.

/// The entries by index, with the indices that are free.
#[derive(Debug)]
pub(crate) struct CompactSlab<T> {
    /// The entries. The vector is empty or ends with an entry, so its last item is always `Some`.
    entries: Vec<Option<T>>,
    /// The free indices, of which the last is handed out next. Indices behind the end of `entries` do not count.
    vacant: Vec<u32>,
}

impl<T> CompactSlab<T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Adds the entry that `new` creates for its index, and returns the index.
    #[inline]
    pub(crate) fn insert_with(&mut self, new: impl FnOnce(u32) -> T) -> u32 {
        while let Some(&idx) = self.vacant.last() {
            if let Some(entry) = self.entries.get_mut(idx as usize) {
                // The entry is made before the index is popped, because `new` may panic.
                *entry = Some(new(idx));
                self.vacant.pop();
                return idx;
            }
            self.vacant.pop(); // behind the end
        }
        // The cast is lossless, because 2³² entries of 100 bytes would not fit into memory.
        let idx = self.entries.len() as u32;
        self.entries.push(Some(new(idx)));
        idx
    }

    /// Takes an entry out. This is O(1) amortized, because the free items that are cut off at the end were added one by
    /// one. Panics if the entry does not exist.
    #[inline]
    pub(crate) fn remove(&mut self, idx: u32) -> T {
        let entry = self.entries[idx as usize].take();
        let entry = entry.expect("an entry is removed once");
        if idx as usize + 1 == self.entries.len() {
            while let Some(None) = self.entries.last() {
                self.entries.pop();
            }
        } else {
            self.vacant.push(idx);
        }
        entry
    }

    #[inline]
    pub(crate) fn get(&self, idx: u32) -> Option<&T> {
        self.entries.get(idx as usize)?.as_ref()
    }

    /// Returns the entry. Panics if it does not exist.
    #[inline]
    pub(crate) fn at(&self, idx: u32) -> &T {
        self.entries[idx as usize]
            .as_ref()
            .expect("the index of an entry")
    }

    /// Returns the entry, to be changed. Panics if it does not exist.
    #[inline]
    pub(crate) fn at_mut(&mut self, idx: u32) -> &mut T {
        self.entries[idx as usize]
            .as_mut()
            .expect("the index of an entry")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let all = (0u32..).zip(&self.entries);
        all.filter_map(|(idx, entry)| Some((idx, entry.as_ref()?)))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of entries that the slab has memory for.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Gives back the memory behind the last entry, and hands out the lowest indices first from now on. All entries
    /// keep their index.
    pub(crate) fn trim(&mut self) {
        self.entries.shrink_to_fit();
        let is_vacant = |idx: &u32| self.entries[*idx as usize].is_none();
        self.vacant = (0..self.entries.len() as u32)
            .rev()
            .filter(is_vacant)
            .collect();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn memory_is_cut_once_the_last_entry_has_left() {
        let mut slab = CompactSlab::new();
        for nth in 0..1_000 {
            assert_eq!(slab.insert_with(|idx| idx), nth);
        }
        for idx in 0..999 {
            assert_eq!(slab.remove(idx), idx);
        }
        slab.trim();
        assert_eq!(slab.insert_with(|idx| idx), 0);
        assert_eq!((slab.get(1), slab.at(999)), (None, &999));
        slab.remove(999);
        assert_eq!(slab.insert_with(|idx| idx), 1);
        slab.trim();
        assert_eq!((slab.capacity(), slab.iter().count()), (2, 2));
        slab.remove(0);
        slab.remove(1);
        assert!(slab.is_empty());
    }

    #[test]
    fn no_index_is_given_twice() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut slab = CompactSlab::new();
        let mut taken: Vec<u32> = Vec::new();
        for _ in 0..20_000 {
            match rng.u8(..8) {
                0..4 => {
                    let idx = slab.insert_with(|idx| idx);
                    assert!(!taken.contains(&idx));
                    taken.push(idx);
                }
                4..7 if !taken.is_empty() => {
                    let idx = taken.swap_remove(rng.usize(..taken.len()));
                    assert_eq!(slab.remove(idx), idx);
                }
                _ if taken.len() > 40 => {
                    taken.drain(..).for_each(|idx| _ = slab.remove(idx));
                    assert!(slab.is_empty());
                }
                _ => slab.trim(),
            }
            assert_eq!(slab.iter().count(), taken.len());
            let last = taken.iter().max().map_or(0, |last| *last as usize + 1);
            assert_eq!(slab.entries.len(), last);
        }
    }
}
