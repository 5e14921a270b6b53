//! Which of equals goes next: the one that came first or, while a queue stands, the one that came last.
//!
//! In a queue that stands, each waiter that came first has waited for so long that its caller is about to leave. The newest
//! are served at once instead, so some are served well, and not all badly.

use super::ordered_queue::{ArrivalKey, OrderedQueue};
use super::room_base::{BEHIND, RoomBase};
use super::waiters::Waiters;

/// The order of waiters of equal rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AgeOrder {
    #[default]
    OldestFirst,
    /// Retries that came too early are behind all others here, too.
    NewestFirst,
}

impl AgeOrder {
    /// A waiter's key in this order, by its key in the order of arrival.
    #[inline]
    pub(crate) fn key(self, (since, seq): ArrivalKey) -> ArrivalKey {
        match self {
            Self::OldestFirst => (since, seq),
            // Reversed below the bit that puts a waiter behind others.
            Self::NewestFirst => (since ^ (BEHIND - 1), !seq),
        }
    }

    /// Whether a newcomer with this key in the order of arrival goes before its equals.
    pub(crate) fn is_next(self, (since, _): ArrivalKey) -> bool {
        self == Self::NewestFirst && since < BEHIND
    }

    /// The waiter of a queue that goes next.
    #[inline]
    pub(crate) fn head<T>(self, queue: &OrderedQueue, waiters: &Waiters<T>) -> Option<u32> {
        match self {
            Self::OldestFirst => queue.head(),
            Self::NewestFirst => queue.newest(waiters),
        }
    }

    /// All waiters of a queue, in this order. O(n log n).
    pub(crate) fn to_vec<T>(self, queue: &OrderedQueue, waiters: &Waiters<T>) -> Vec<u32> {
        let mut all = queue.to_vec(waiters);
        if self == Self::NewestFirst {
            all.sort_unstable_by_key(|&idx| self.key(waiters.meta(idx).key()));
        }
        all
    }
}

impl RoomBase {
    /// Whether the order may become newest first, or is.
    #[inline]
    pub(crate) fn has_age_order(&self) -> bool {
        self.config.lifo_when_standing || self.age_order == AgeOrder::NewestFirst
    }
}
