//! What can be known of a queue without its lock.

use super::DequeueError;

/// How many wait, and whether nobody may come any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary(pub(super) u64);

const CLOSED: u64 = 1 << 63;

impl Summary {
    pub(super) fn new(waiting: usize, is_closed: bool) -> Self {
        Self(waiting as u64 | if is_closed { CLOSED } else { 0 })
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
