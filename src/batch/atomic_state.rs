//! A word with the number of waiting items and a closed flag, which can be read without the lock.

use super::DequeueError;

/// The number of waiting items in the lower 63 bits, and [`CLOSED`] in the top bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AtomicState(pub(super) u64);

/// The top bit, which is set once the queue stops accepting items.
const CLOSED: u64 = 1 << 63;

impl AtomicState {
    pub(super) fn new(waiting: usize, is_closed: bool) -> Self {
        let closed = if is_closed { CLOSED } else { 0 };
        Self(waiting as u64 | closed) // fewer than 2^63 items fit into memory
    }

    pub(super) fn waiting(self) -> usize {
        (self.0 & !CLOSED) as usize
    }

    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Returns the reason why a consumer found the queue empty.
    pub(super) fn dequeue_error(self) -> DequeueError {
        // An item may have arrived since, before the queue was closed, and has yet to be taken.
        match self.is_closed() && self.waiting() == 0 {
            true => DequeueError::Closed,
            false => DequeueError::Empty,
        }
    }
}
