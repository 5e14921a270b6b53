//! The earliest deadline first.

use super::super::chairs::{Came, Chairs, QUEUE};
use super::super::line::{Key, Line};
use super::super::nanos::Nanos;
use super::{Strand, Turn};

/// Waiters by the end of their wait; equal ends, and those without one, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Deadline(Line<QUEUE, Due>);

/// A wait's end, and who came first. Smaller than a [`Turn`]: in a long line the search is as slow as memory is.
type Due = (Nanos, Came);

impl Key for Due {
    fn of<T>(chairs: &Chairs<T>, at: u32) -> Self {
        (chairs.end(at), chairs.place(at).came())
    }
}

impl Deadline {
    pub(super) fn new() -> Self {
        Self(Line::new())
    }

    pub(super) fn push<T>(&mut self, chairs: &mut Chairs<T>, at: u32) -> bool {
        self.0.push(chairs, at)
    }

    pub(super) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        self.0.remove(chairs, at);
    }

    pub(super) fn head<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        self.0.head(chairs)
    }

    pub(super) fn strands<T>(&self, chairs: &Chairs<T>) -> impl Iterator<Item = Strand> {
        let all = self.0.in_order(chairs).into_iter();
        all.map(|at| Strand::one(turn(chairs, at), at))
    }
}

pub(super) fn turn<T>(chairs: &Chairs<T>, at: u32) -> Turn {
    let (end, (since, seq)) = Due::of(chairs, at);
    Turn::new(end, since, seq)
}
