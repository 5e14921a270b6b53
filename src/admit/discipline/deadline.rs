//! The earliest deadline first.

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::chairs::{Came, Chairs, Place, nanos_from};
use super::{Strand, Turn};

/// Waiters by the end of their wait; equal ends, and those without one, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Deadline {
    by_end: BTreeMap<Due, u32>,
    /// What instants are measured from.
    epoch: Instant,
}

/// A wait's end in nanoseconds, or `u64::MAX`, and who came first. Smaller than a [`Turn`]: in a long line the
/// search is as slow as memory is.
type Due = (u64, Came);

impl Deadline {
    pub(super) fn new(epoch: Instant) -> Self {
        Self {
            by_end: BTreeMap::new(),
            epoch,
        }
    }

    pub(super) fn push<T>(&mut self, chairs: &Chairs<T>, at: u32) -> bool {
        self.by_end.insert(self.due(chairs.place(at)), at);
        self.by_end.values().next() == Some(&at)
    }

    pub(super) fn remove<T>(&mut self, chairs: &Chairs<T>, at: u32) {
        self.by_end.remove(&self.due(chairs.place(at)));
    }

    pub(super) fn head(&self) -> Option<(u32, Turn)> {
        self.by_end
            .first_key_value()
            .map(|(&due, &at)| (at, turn(due)))
    }

    pub(super) fn strands(&self) -> impl Iterator<Item = Strand> {
        self.by_end
            .iter()
            .map(|(&due, &at)| Strand::one(turn(due), at))
    }

    fn due(&self, place: &Place) -> Due {
        let end = place.expires.map(|end| nanos_from(self.epoch, end));
        let end = end.unwrap_or(u64::MAX);
        (end, place.came())
    }
}

fn turn((end, (since, seq)): Due) -> Turn {
    (u128::from(end) << 64 | u128::from(since), seq)
}
