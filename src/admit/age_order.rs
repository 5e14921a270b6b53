//! The order of waiters of equal rank: oldest first or, while a queue is standing, newest first.
//!
//! In a standing queue, each of the oldest waiters has waited for so long that its caller is about to leave. The newest
//! are served at once instead, so some requests are served well instead of all of them badly.

use super::ordered_queue::{ArrivalKey, OrderedQueue};
use super::room_base::{BEHIND, RoomBase};
use super::waiters::Waiters;

/// The order of waiters of equal rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum AgeOrder {
    #[default]
    OldestFirst,
    /// The newest waiter goes first, but retries that came too early stay behind all others.
    NewestFirst,
}

impl AgeOrder {
    /// Returns a waiter's key in this order, from its key in the order of arrival.
    #[inline]
    pub(crate) fn key(self, (since, seq): ArrivalKey) -> ArrivalKey {
        match self {
            Self::OldestFirst => (since, seq),
            // The bits below `BEHIND` are inverted, so early retries keep their position behind others.
            Self::NewestFirst => (since ^ (BEHIND - 1), !seq),
        }
    }

    /// Returns `true` if a newcomer with this key in the order of arrival goes before its equals.
    pub(crate) fn is_next(self, (since, _): ArrivalKey) -> bool {
        self == Self::NewestFirst && since < BEHIND
    }

    #[inline]
    pub(crate) fn head<T>(self, queue: &OrderedQueue, waiters: &Waiters<T>) -> Option<u32> {
        match self {
            Self::OldestFirst => queue.head(),
            Self::NewestFirst => queue.newest(waiters),
        }
    }

    /// Returns all waiters of a queue in this order. O(n log n).
    pub(crate) fn to_vec<T>(self, queue: &OrderedQueue, waiters: &Waiters<T>) -> Vec<u32> {
        let mut all = queue.to_vec(waiters);
        if self == Self::NewestFirst {
            all.sort_unstable_by_key(|&idx| self.key(waiters.meta(idx).key()));
        }
        all
    }
}

impl RoomBase {
    /// Returns `true` if the order is newest first or may become so.
    #[inline]
    pub(crate) fn has_age_order(&self) -> bool {
        self.config.lifo_when_standing || self.age_order == AgeOrder::NewestFirst
    }
}
