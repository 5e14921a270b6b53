//! The items of a queue, by the index of their waiter.
//!
//! They are beside the wait queue and not in it: an item may be large, and what is inside an entry is moved several times.

/// The items that wait, or that were unlinked and not taken yet.
pub(super) struct Items<T>(Vec<Option<T>>);

impl<T> Items<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Keeps the item of the waiter with this index, which has none yet.
    #[inline]
    pub(super) fn put(&mut self, idx: usize, item: T) {
        // Indices are given again once they are free, so there are never more than ever waited at a time.
        if idx >= self.0.len() {
            self.0.resize_with(idx + 1, || None);
        }
        self.0[idx] = Some(item);
    }

    /// Takes an item out. `None` if the waiter has none.
    #[inline]
    pub(super) fn take(&mut self, idx: usize) -> Option<T> {
        self.0[idx].take()
    }

    /// Gives back the memory of items from this index on, which are gone.
    #[inline]
    pub(super) fn trim(&mut self, capacity: usize) {
        if self.0.len() > capacity {
            self.0.truncate(capacity);
            self.0.shrink_to_fit();
        }
    }
}
