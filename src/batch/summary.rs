//! How many items wait, and whether more may come, in one word that is read without the lock.

use super::DequeueError;

/// The number of waiting items, and a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary(pub(super) u64);

/// No item may come any more.
const CLOSED: u64 = 1 << 63;

impl Summary {
    pub(super) fn new(waiting: usize, is_closed: bool) -> Self {
        let closed = if is_closed { CLOSED } else { 0 };
        Self(waiting as u64 | closed)
    }

    pub(super) fn waiting(self) -> usize {
        (self.0 & !CLOSED) as usize
    }

    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Why there is nothing to take.
    pub(super) fn nothing(self) -> DequeueError {
        match self.is_closed() {
            true => DequeueError::Closed,
            false => DequeueError::Empty,
        }
    }
}
