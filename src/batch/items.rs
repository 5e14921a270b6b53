//! The items of a queue, by the index of their waiter.
//!
//! Items are stored beside the wait queue, because an item may be large and the contents of an entry are moved several
//! times.

/// The items that wait, and those that were unlinked but have not been taken.
pub(super) struct Items<T>(Vec<Option<T>>);

impl<T> Items<T> {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Stores the item of the waiter with this index, which must be free.
    #[inline]
    pub(super) fn put(&mut self, idx: usize, item: T) {
        // Indices are given again once they are free, so the vector is as long as the largest number of items that ever
        // waited at the same time.
        if idx >= self.0.len() {
            self.0.resize_with(idx + 1, || None);
        }
        self.0[idx] = Some(item);
    }

    /// Takes an item out, or returns `None` if the waiter has none.
    #[inline]
    pub(super) fn take(&mut self, idx: usize) -> Option<T> {
        self.0[idx].take()
    }

    /// Gives back the memory of items from the index `capacity` on, which are gone.
    #[inline]
    pub(super) fn trim(&mut self, capacity: usize) {
        if self.0.len() > capacity {
            self.0.truncate(capacity);
            self.0.shrink_to_fit();
        }
    }
}
