//! The room from its other side: those who serve come and fetch who is next.
//!
//! A batch scheduler has no slots that come back one by one. At each step it looks how much it can take, and a
//! room that only hands out slots would have to be told of one for each request that it might take. Here the
//! head is looked at first, and then taken, as if it had been given a slot, or set aside so that the one behind
//! it can be looked at.

use std::time::Instant;

use super::room::{Key, State, WaitingRoom};
use super::{Capacity, Woken};

/// A waiter that is out of its line for a moment, to be [put back](WaitingRoom::put_back).
#[derive(Debug)]
#[must_use = "whoever is not put back is never served"]
pub struct Aside(Key);

impl Aside {
    /// Who it is.
    #[must_use]
    pub fn key(&self) -> Key {
        self.0
    }
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Whether it still waits. A void key is nobody's.
    #[must_use]
    pub fn waits(&self, key: Key) -> bool {
        self.chairs.still_waits(key.at, key.seq)
    }

    /// The note of a waiter, to be written on.
    pub fn note_mut(&mut self, key: Key) -> Option<&mut W> {
        match &mut self.chairs.body_mut(key.at).state {
            State::Waiting(note) => note.as_mut(),
            _ => None,
        }
    }

    /// Takes the waiter out to be served, together with the note that it left. Its key is void then. `None` if
    /// it no longer waits.
    ///
    /// Under [`Fair`](super::Discipline::Fair) its tenant pays for it.
    pub fn take(&mut self, key: Key) -> Option<W> {
        if !self.waits(key) {
            return None;
        }
        self.lanes.serve(&mut self.chairs, key.at);
        self.forget(key.at);
        self.drain.depart();
        match self.chairs.leave(key.at).state {
            State::Waiting(note) => note,
            State::Leased(_) | State::Rejected(_) => None,
        }
    }

    /// Takes the waiter out of its line, to look at the one behind it. It keeps its chair, and is put back
    /// before anybody else comes.
    pub fn set_aside(&mut self, key: Key) -> Aside {
        self.lanes.set_aside(&mut self.chairs, key.at);
        Aside(key)
    }

    /// Puts a waiter back where it stood.
    pub fn put_back(&mut self, aside: Aside) {
        self.lanes.put_back(&mut self.chairs, aside.0.at);
    }

    /// The head, and everyone who competes with it for the same slots, in the order in which they would be
    /// served if nobody else came. O(n log n).
    #[must_use]
    pub fn in_order(&self) -> Vec<Key> {
        let Some(head) = self.head() else {
            return Vec::new();
        };
        let key = |at| Key {
            at,
            seq: self.chairs.place(at).seq,
        };
        let lane = self.chairs.place(head.at).lane;
        let order = self.lanes.forecast(&self.chairs, lane);
        order.into_iter().map(key).collect()
    }

    /// When the one who came first of all who wait came. O(n).
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let since = self.chairs.waiting().map(|(_, place)| place.since);
        self.epoch.instant(since.min()?)
    }

    /// Lets nobody in any more. Whoever waits still does.
    pub fn let_nobody_in(&mut self) {
        self.closed = true;
    }

    /// Whoever has waited too long by `now` is answered, and whoever has waited long enough rises.
    pub fn keep_time(&mut self, now: Instant, woken: &mut Woken<W>) {
        self.catch_up(self.epoch.nanos(now), woken);
    }
}
