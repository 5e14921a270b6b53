//! First come, first served.

use super::super::chairs::{Chairs, QUEUE};
use super::super::line::Line;
use super::{Strand, Turn};

#[derive(Debug)]
pub(crate) struct Fifo(Line<QUEUE>);

impl Fifo {
    pub(super) fn new() -> Self {
        Self(Line::new())
    }

    #[inline]
    pub(super) fn push<T>(&mut self, chairs: &mut Chairs<T>, at: u32) -> bool {
        self.0.push(chairs, at)
    }

    #[inline]
    pub(super) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        self.0.remove(chairs, at);
    }

    #[inline]
    pub(super) fn head<T>(&self, chairs: &Chairs<T>) -> Option<u32> {
        self.0.head(chairs)
    }

    pub(super) fn strands<T>(&self, chairs: &Chairs<T>) -> impl Iterator<Item = Strand> {
        let all = self.0.in_order(chairs).into_iter();
        all.map(|at| Strand::one(turn(chairs, at), at))
    }
}

#[inline]
pub(super) fn turn<T>(chairs: &Chairs<T>, at: u32) -> Turn {
    let (since, seq) = chairs.place(at).came();
    Turn::new(since, seq, 0)
}
