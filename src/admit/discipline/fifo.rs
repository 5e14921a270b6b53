//! First come, first served.

use super::super::blocks::Blocks;
use super::super::chairs::{Came, Chairs, QUEUE};
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

    /// Lines up `at`, who came then, and says where it is found.
    #[inline(always)]
    pub(crate) fn push_found(&mut self, blocks: &mut Blocks, at: u32, came: Came) -> u32 {
        self.0.push_found(blocks, at, came)
    }

    /// Who is next. `None` if there is nobody, or more to be looked at.
    #[cfg(feature = "batch")]
    #[inline(always)]
    pub(crate) fn native_head(&self, blocks: &Blocks) -> Option<u32> {
        self.0.native_head(blocks)
    }

    /// Takes out the [native head](Self::native_head).
    #[cfg(feature = "batch")]
    #[inline(always)]
    pub(crate) fn pop(&mut self, blocks: &mut Blocks) -> Option<u32> {
        self.0.pop(blocks)
    }

    #[cfg(feature = "batch")]
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(crate) fn remove<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
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
