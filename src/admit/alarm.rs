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
use std::time::Instant;

/// A waiter, by chair and sequence number.
pub(crate) type Whom = (u32, u64);

/// When, and for whom.
type Alarm = (Instant, u64, u32);

/// Instants at which waiters are to be looked at, earliest first.
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
    pub(crate) fn set(&mut self, at: Instant, (chair, seq): Whom) {
        let alarm = (at, seq, chair);
        if self.row.back().is_none_or(|&last| last <= alarm) {
            self.row.push_back(alarm);
        } else {
            self.heap.push(Reverse(alarm));
        }
    }

    /// Notes that an alarm's waiter left.
    pub(crate) fn leave_behind(&mut self, alive: impl Fn(Whom) -> bool) {
        self.dead += 1;
        // Who is served has often waited longest.
        while let Some(&first) = self.row.front()
            && !alive(whom(first))
        {
            self.row.pop_front();
            self.dead = self.dead.saturating_sub(1);
        }
        if self.dead > SWEEP_ABOVE && self.dead > (self.row.len() + self.heap.len()) / 2 {
            self.sweep(alive);
        }
    }

    fn sweep(&mut self, alive: impl Fn(Whom) -> bool) {
        self.heap.retain(|&Reverse(alarm)| alive(whom(alarm)));
        // Nobody can guess who is alive, and `retain` would wait for each answer before it asks again.
        let mut kept = 0;
        for i in 0..self.row.len() {
            let alarm = self.row[i];
            self.row[kept] = alarm;
            kept += usize::from(alive(whom(alarm)));
        }
        self.row.truncate(kept);
        self.dead = 0;
    }

    /// Takes the next alarm that is due at `now` and still has a waiter.
    pub(crate) fn ring(&mut self, now: Instant, alive: impl Fn(Whom) -> bool) -> Option<Whom> {
        loop {
            let (at, in_row) = self.first()?;
            if at > now {
                return None;
            }
            let alarm = match in_row {
                true => self.row.pop_front(),
                false => self.heap.pop().map(|Reverse(alarm)| alarm),
            }?;
            if alive(whom(alarm)) {
                return Some(whom(alarm));
            }
            self.dead = self.dead.saturating_sub(1);
        }
    }

    /// The earliest alarm, perhaps of a waiter that has left.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.first().map(|(at, _)| at)
    }

    /// When the earliest falls due, and whether it stands in the row.
    fn first(&self) -> Option<(Instant, bool)> {
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

fn whom((_, seq, chair): Alarm) -> Whom {
    (chair, seq)
}
