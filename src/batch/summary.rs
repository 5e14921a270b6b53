//! What can be known of a queue without its lock.

use super::DequeueError;

/// How many wait, whether nobody may come any more, and whether it matters what time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Summary(pub(super) u64);

const CLOSED: u64 = 1 << 63;
const TIMED: u64 = 1 << 62;

impl Summary {
    pub(super) fn new(waiting: usize, is_closed: bool, is_timed: bool) -> Self {
        let closed = if is_closed { CLOSED } else { 0 };
        let timed = if is_timed { TIMED } else { 0 };
        Self(waiting as u64 | closed | timed)
    }

    pub(super) fn with_waiting(self, waiting: usize) -> Self {
        Self(self.0 & (CLOSED | TIMED) | waiting as u64)
    }

    pub(super) fn waiting(self) -> usize {
        (self.0 & !(CLOSED | TIMED)) as usize
    }

    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    pub(super) fn is_timed(self) -> bool {
        self.0 & TIMED != 0
    }

    /// Why there is nothing to take.
    pub(super) fn nothing(self) -> DequeueError {
        match self.is_closed() {
            true => DequeueError::Closed,
            false => DequeueError::Empty,
        }
    }
}
