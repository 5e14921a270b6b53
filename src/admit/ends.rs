//! When waits end.
//!
//! Nearly nobody waits for as long as they may: they are served or leave first. Where all may wait equally long,
//! waits end in the order in which they began. Those that do are a list, and whoever leaves is taken out of it at
//! once. Alarms are set only for the others.

use super::alarm::Alarms;
use super::blocks::{Blocks, List};
use super::chairs::{Chairs, ENDS, NONE};
use super::nanos::{NEVER, Nanos};

/// Everyone whose wait ends.
#[derive(Debug)]
pub(crate) struct Ends {
    in_order: List,
    /// When, and for whom, the latest ends who ever was in the list.
    latest: (Nanos, u64),
    others: Alarms,
    /// Nobody's wait ends before.
    next: Nanos,
}

impl Ends {
    pub(crate) fn new() -> Self {
        Self {
            in_order: List::EMPTY,
            latest: (0, 0),
            others: Alarms::default(),
            next: NEVER,
        }
    }

    #[inline]
    pub(crate) fn enter<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        let (end, seq) = (chairs.end(at), chairs.place(at).seq);
        let number = match end {
            NEVER => NONE,
            end => self.enter_found(&mut chairs.blocks, at, (end, seq)),
        };
        chairs.set_found(at, ENDS, number);
    }

    /// Enters `at`, whose wait ends then, and says where it is found.
    #[inline]
    pub(crate) fn enter_found(&mut self, blocks: &mut Blocks, at: u32, end: (Nanos, u64)) -> u32 {
        self.next = self.next.min(end.0);
        if self.in_order.is_empty() || self.latest < end {
            self.latest = end;
            return self.in_order.push(blocks, at);
        }
        self.others.set(end.0, (at, end.1));
        NONE
    }

    /// The waiter on chair `at` waits no longer.
    #[inline]
    pub(crate) fn leave<T>(&mut self, chairs: &mut Chairs<T>, at: u32) {
        match chairs.found(at, ENDS) {
            NONE if chairs.end(at) == NEVER => {}
            NONE => self.others.leave_behind(chairs),
            number => self.in_order.remove(&mut chairs.blocks, number),
        }
    }

    /// Gives back memory that the waiters of now do not need.
    pub(crate) fn trim<T>(&mut self, chairs: &Chairs<T>) {
        self.others.trim(chairs);
    }

    /// The earliest end, perhaps of one who has left.
    #[inline]
    pub(crate) fn next(&self) -> Nanos {
        self.next
    }

    /// Whose wait ends next, if that is by `now`. It has to leave then.
    pub(crate) fn due<T>(&mut self, now: Nanos, chairs: &Chairs<T>) -> Option<u32> {
        let first = self.in_order.head(&chairs.blocks);
        let first = first.map(|at| (chairs.end(at), chairs.place(at).seq, at));
        let due = first.filter(|&(end, ..)| end <= now);
        let (by, last) = due.map_or((now, u64::MAX), |(end, seq, _)| (end, seq));
        let other = self.others.ring(by, last, chairs);
        if other.is_none() && due.is_none() {
            let end = first.map_or(NEVER, |(end, ..)| end);
            self.next = end.min(self.others.next());
        }
        other.or(due.map(|(.., at)| at))
    }
}
