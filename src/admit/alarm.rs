//! What falls due when.
//!
//! Most alarms never ring: their waiter is served or leaves first. Taking each out of a heap would cost
//! every request O(log n) for nothing. So a waiter that leaves just leaves its alarm behind, and when the
//! dead outnumber the living, all of the dead go at once: O(1) amortised, and memory stays in proportion.
//!
//! Where all wait equally long, alarms are set in the order in which they fall due. Those that are stand in a
//! row, and only the others in a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::chairs::Chairs;
use super::nanos::{NEVER, Nanos};

/// When, and for whom.
type Alarm = (Nanos, u64, u32);

/// Instants at which waiters, known by chair and sequence number, are to be looked at, earliest first.
#[derive(Debug, Default)]
pub(crate) struct Alarms {
    /// Those that were set in the order in which they fall due.
    row: VecDeque<Alarm>,
    heap: BinaryHeap<Reverse<Alarm>>,
    dead: usize,
}

/// Below this, sweeping is not worth its trouble.
const SWEEP_ABOVE: usize = 64;

impl Alarms {
    pub(crate) fn set(&mut self, at: Nanos, (chair, seq): (u32, u64)) {
        let alarm = (at, seq, chair);
        if self.row.back().is_none_or(|&last| last <= alarm) {
            self.row.push_back(alarm);
        } else {
            self.heap.push(Reverse(alarm));
        }
    }

    /// Notes that an alarm's waiter left.
    pub(crate) fn leave_behind<T>(&mut self, chairs: &Chairs<T>) {
        self.dead += 1;
        // Who is served has often waited longest.
        while let Some(&first) = self.row.front()
            && !is_alive(first, chairs)
        {
            self.row.pop_front();
            self.dead = self.dead.saturating_sub(1);
        }
        if self.dead > SWEEP_ABOVE && self.dead > (self.row.len() + self.heap.len()) / 2 {
            self.sweep(chairs);
        }
    }

    fn sweep<T>(&mut self, chairs: &Chairs<T>) {
        self.heap.retain(|&Reverse(alarm)| is_alive(alarm, chairs));
        // Nobody can guess who is alive, and `retain` would wait for each answer before it asks again.
        let mut kept = 0;
        for i in 0..self.row.len() {
            let alarm = self.row[i];
            self.row[kept] = alarm;
            kept += usize::from(is_alive(alarm, chairs));
        }
        self.row.truncate(kept);
        self.dead = 0;
    }

    /// Takes the next alarm that is due at `now` and still has a waiter.
    pub(crate) fn ring<T>(&mut self, now: Nanos, chairs: &Chairs<T>) -> Option<u32> {
        loop {
            let (at, in_row) = self.first()?;
            if at > now {
                return None;
            }
            let alarm = match in_row {
                true => self.row.pop_front(),
                false => self.heap.pop().map(|Reverse(alarm)| alarm),
            }?;
            if is_alive(alarm, chairs) {
                return Some(alarm.2);
            }
            self.dead = self.dead.saturating_sub(1);
        }
    }

    /// The earliest alarm, perhaps of a waiter that has left.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.first().map_or(NEVER, |(at, _)| at)
    }

    /// When the earliest falls due, and whether it stands in the row.
    #[inline]
    fn first(&self) -> Option<(Nanos, bool)> {
        match (self.row.front(), self.heap.peek()) {
            (Some(row), Some(Reverse(heap))) if heap < row => Some((heap.0, false)),
            (Some(row), _) => Some((row.0, true)),
            (None, heap) => heap.map(|Reverse(heap)| (heap.0, false)),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.row.clear();
        self.heap.clear();
        self.dead = 0;
    }
}

fn is_alive<T>((_, seq, chair): Alarm, chairs: &Chairs<T>) -> bool {
    chairs.still_waits(chair, seq)
}
