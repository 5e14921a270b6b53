//! Whom to tell that their wait is over.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// The notes of those whose wait ended, to be acted on after the lock is released.
///
/// Nearly every release seats one waiter, so the first needs no allocation.
#[derive(Debug)]
pub struct WakeList<W> {
    first: Option<W>,
    more: Vec<W>,
}

impl<W> WakeList<W> {
    /// Nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            first: None,
            more: Vec::new(),
        }
    }

    /// Adds one.
    pub fn push(&mut self, note: W) {
        if self.first.is_none() {
            self.first = Some(note);
        } else {
            self.more.push(note);
        }
    }

    /// Whether there is nobody to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl WakeList<Waker> {
    /// Wakes every task. As [`wake`], so that one waker that panics keeps no other task asleep.
    pub(crate) fn wake_all(self) {
        self.into_iter().for_each(wake);
    }
}

/// Wakes a task. If its waker panics, the panic ends here, where the panic hook has reported it: the caller may
/// be a destructor, or hold an item or a permit that an unwinding would lose.
pub(crate) fn wake(waker: Waker) {
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
        self.first.into_iter().chain(self.more)
    }
}
