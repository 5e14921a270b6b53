//! The earliest deadline first.

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::chairs::{Chairs, Place};
use super::{Strand, Turn};

/// Waiters by the end of their wait; equal ends, and those without one, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Deadline {
    by_end: BTreeMap<Turn, u32>,
    /// What instants are measured from.
    epoch: Instant,
}

impl Deadline {
    pub(super) fn new(epoch: Instant) -> Self {
        Self {
            by_end: BTreeMap::new(),
            epoch,
        }
    }

    pub(super) fn push<T>(&mut self, chairs: &Chairs<T>, at: u32) {
        self.by_end.insert(self.turn(chairs.place(at)), at);
    }

    pub(super) fn remove<T>(&mut self, chairs: &Chairs<T>, at: u32) {
        self.by_end.remove(&self.turn(chairs.place(at)));
    }

    pub(super) fn head(&self) -> Option<(u32, Turn)> {
        self.by_end.first_key_value().map(|(&turn, &at)| (at, turn))
    }

    pub(super) fn strands(&self) -> impl Iterator<Item = Strand> {
        self.by_end.iter().map(|(&turn, &at)| Strand::one(turn, at))
    }

    fn turn(&self, place: &Place) -> Turn {
        let end = place.expires.map_or(u128::MAX, |end| {
            end.saturating_duration_since(self.epoch).as_nanos()
        });
        (end, place.seq)
    }
}
