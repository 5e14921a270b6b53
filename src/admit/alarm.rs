//! What falls due when.
//!
//! Most alarms never ring: their waiter is served or leaves first. Taking each out of a heap would cost
//! every request O(log n) for nothing. So a waiter that leaves just leaves its alarm behind, and when the
//! dead outnumber the living, all of the dead go at once: O(1) amortised, and memory stays in proportion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::chairs::Chairs;
use super::nanos::{NEVER, Nanos};

/// Instants at which waiters, known by chair and sequence number, are to be looked at, earliest first.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    heap: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    dead: usize,
}

/// Below this, sweeping is not worth its trouble.
const SWEEP_ABOVE: usize = 64;

impl Alarms {
    pub(crate) fn set(&mut self, at: Nanos, (chair, seq): (u32, u64)) {
        self.heap.push(Reverse((at, seq, chair)));
    }

    /// Notes that an alarm's waiter left.
    pub(crate) fn leave_behind<T>(&mut self, chairs: &Chairs<T>) {
        self.dead += 1;
        if self.dead > SWEEP_ABOVE && self.dead > self.heap.len() / 2 {
            self.sweep(chairs);
        }
    }

    /// Forgets the alarms of waiters that have left, and gives their memory back.
    pub(crate) fn trim<T>(&mut self, chairs: &Chairs<T>) {
        self.sweep(chairs);
        self.heap.shrink_to_fit();
    }

    fn sweep<T>(&mut self, chairs: &Chairs<T>) {
        self.heap
            .retain(|&Reverse((_, seq, chair))| chairs.still_waits(chair, seq));
        self.dead = 0;
    }

    /// Takes the next alarm that still has a waiter, if it is due then, and at equal instants that waiter came no
    /// later than number `last`.
    pub(crate) fn ring<T>(&mut self, by: Nanos, last: u64, chairs: &Chairs<T>) -> Option<u32> {
        while let Some(&Reverse((at, seq, chair))) = self.heap.peek() {
            if (at, seq) > (by, last) {
                return None;
            }
            self.heap.pop();
            if chairs.still_waits(chair, seq) {
                return Some(chair);
            }
            self.dead = self.dead.saturating_sub(1);
        }
        None
    }

    /// The earliest alarm, perhaps of a waiter that has left.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.heap.peek().map_or(NEVER, |Reverse((at, ..))| *at)
    }
}
