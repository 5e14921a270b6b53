//! The only lane, where all are served in the order in which they come.

use std::hash::Hash;

use super::super::Priority;
use super::super::blocks::Blocks;
use super::super::chairs::{Came, Chairs};
use super::super::discipline::{Fifo, Queue};
use super::Lanes;

impl<L: Clone + Eq + Hash> Lanes<L> {
    /// The only lane, if it is one in which nothing counts but the level and who came first.
    pub(crate) fn plain(&self) -> Option<u32> {
        let lane = self.alone?;
        let levels = &self.lanes[lane as usize].levels;
        let is_plain = !self.limited && levels.iter().all(|queue| matches!(queue, Queue::Fifo(_)));
        is_plain.then_some(lane)
    }

    /// Whether the lane is that of `key`.
    #[inline]
    pub(crate) fn is(&self, lane: u32, key: &L) -> bool {
        // Of a type of no size there is one value.
        size_of::<L>() == 0 || self.lanes[lane as usize].key == *key
    }

    /// Lines up a waiter of that level there who came then, and says where it is found.
    #[inline(always)]
    pub(crate) fn push_plain(
        &mut self,
        blocks: &mut Blocks,
        lane: u32,
        Priority(level): Priority,
        at: u32,
        came: Came,
    ) -> u32 {
        self.line(lane, level).push_found(blocks, at, came)
    }

    /// The line there of whoever is next. `None` if nobody is.
    #[cfg(feature = "batch")]
    #[inline(always)]
    pub(crate) fn next_plain(&mut self, lane: u32) -> Option<&mut Fifo> {
        let levels = self.lanes[lane as usize].levels.iter_mut();
        let mut lines = levels.map_while(|queue| match queue {
            Queue::Fifo(line) => Some(line),
            _ => None,
        });
        lines.find(|line| !line.is_empty())
    }

    /// Takes a waiter out of there.
    #[inline]
    pub(crate) fn remove_plain<T>(&mut self, chairs: &mut Chairs<T>, lane: u32, at: u32) {
        let level = chairs.place(at).level;
        self.line(lane, level).remove(chairs, at);
    }

    #[inline(always)]
    fn line(&mut self, lane: u32, level: u8) -> &mut Fifo {
        match &mut self.lanes[lane as usize].levels[usize::from(level)] {
            Queue::Fifo(line) => line,
            _ => unreachable!("the lane is plain"),
        }
    }
}
