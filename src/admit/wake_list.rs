//! A list of wakers that are woken after the lock was released.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// The wakers of waiters that were granted a slot or rejected. The caller wakes them after it has released the lock
/// around the room.
///
/// Nearly every release ends one wait, so the first waker is stored without an allocation.
#[derive(Debug)]
pub struct WakeList<W> {
    first: Option<W>,
    more: Option<Box<More<W>>>,
}

/// The wakers after the first one. They are in a box, so that a list without them is cheap to make and to drop.
#[derive(Debug)]
struct More<W>(Vec<W>);

impl<W> WakeList<W> {
    /// Creates an empty list.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self {
            first: None,
            more: None,
        }
    }

    /// Adds a waker.
    #[inline]
    pub fn push(&mut self, waker: W) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            let more = self.more.get_or_insert_with(|| Box::new(More(Vec::new())));
            more.0.push(waker);
        }
    }

    /// Returns `true` if the list has no wakers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // `more` gets wakers only after `first` is set.
        self.first.is_none()
    }
}

impl WakeList<Waker> {
    /// Wakes every task, including those behind a waker that panics.
    #[inline]
    pub(crate) fn wake_all(&mut self) {
        if let Some(first) = self.first.take() {
            wake(first);
            if let Some(more) = self.more.take() {
                more.0.into_iter().for_each(wake);
            }
        }
    }
}

/// Wakes a task. If its waker panics, the panic ends here after the panic hook has reported it. The caller may be a
/// destructor, or hold an item or a permit that unwinding would lose.
pub(crate) fn wake(waker: Waker) {
    // The hook has reported the panic, and its value adds nothing.
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

impl<W> Default for WakeList<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> IntoIterator for WakeList<W> {
    type Item = W;
    type IntoIter = std::iter::Chain<std::option::IntoIter<W>, std::vec::IntoIter<W>>;

    fn into_iter(self) -> Self::IntoIter {
        let more = self.more.map(|more| more.0).unwrap_or_default();
        self.first.into_iter().chain(more)
    }
}
