//! The chairs of the waiting room: who sits on each, and what is known of them.
//!
//! A waiter is linked into its queues by the number of its chair, so that it can be taken out from wherever
//! it waits in constant time, without a search and without a pointer.

use std::time::Instant;

use slab::Slab;

use super::Ticket;

/// The end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// A waiter's neighbours in one of the lists that it is in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Link {
    const NONE: Self = Self {
        prev: NONE,
        next: NONE,
    };
}

/// The list that the discipline walks.
pub(crate) const QUEUE: usize = 0;
/// The list of all waiters of a level, over all lanes, in the order of arrival.
pub(crate) const ARRIVALS: usize = 1;
/// The list of all waiters of a level in one section, in the order of arrival.
pub(crate) const SECTION: usize = 2;

const LISTS: usize = 3;

/// Who came when: nanoseconds from the room's epoch, then the order in which they sat down.
pub(crate) type Came = (u64, u64);

/// How long after `epoch` an instant is, in nanoseconds.
pub(crate) fn nanos_from(epoch: Instant, instant: Instant) -> u64 {
    let since = instant.saturating_duration_since(epoch);
    let seconds = since.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(since.subsec_nanos().into())
}

/// Where a waiter stands in line.
#[derive(Debug)]
pub(crate) struct Place {
    /// Tells this waiter from earlier ones on the same chair.
    pub(crate) seq: u64,
    /// When it came, in nanoseconds from the room's epoch. Never less than for those who sat down before,
    /// unless it comes back.
    pub(crate) since: u64,
    pub(crate) lane: u32,
    /// The section, if its chairs are limited.
    pub(crate) section: Option<u32>,
    /// The tenant's flow within the lane, under `Fair`.
    pub(crate) flow: u32,
    /// The level it waits in now; `ticket.priority` is the one it came with.
    pub(crate) level: u8,
    /// Whether it was ever out of its line, so that others may have been served who stood behind it.
    pub(crate) was_aside: bool,
    pub(crate) ticket: Ticket,
    /// When its wait ends.
    pub(crate) expires: Option<Instant>,
}

impl Place {
    pub(crate) fn new((since, seq): Came, ticket: Ticket, expires: Option<Instant>) -> Self {
        Self {
            seq,
            since,
            lane: NONE,
            section: None,
            flow: NONE,
            level: ticket.priority.0,
            was_aside: false,
            ticket,
            expires,
        }
    }

    /// What orders it among all who wait, wherever nothing else does.
    pub(crate) fn came(&self) -> Came {
        (self.since, self.seq)
    }

    /// Whether it stands behind all who came to its level before.
    pub(crate) fn is_last(&self) -> bool {
        self.risen() == 0 && !self.ticket.returning && !self.was_aside
    }

    /// How many levels it has risen.
    pub(crate) fn risen(&self) -> usize {
        usize::from(self.ticket.priority.0 - self.level)
    }

    /// What it takes from its tenant's share.
    pub(crate) fn cost(&self) -> u128 {
        u128::from(self.ticket.cost.max(1))
    }
}

/// A chair: the waiter's place in line, and what it brought.
#[derive(Debug)]
pub(crate) struct Chair<T> {
    pub(crate) place: Place,
    pub(crate) body: T,
}

/// All chairs that are taken, by number.
#[derive(Debug)]
pub(crate) struct Chairs<T> {
    taken: Slab<Chair<T>>,
    /// Whom each waiter stands between. Kept apart, close together: whoever leaves changes the links of
    /// neighbours that are nowhere near in memory, and need not fetch their chairs for that.
    links: Vec<[Link; LISTS]>,
}

impl<T> Chairs<T> {
    pub(crate) fn new() -> Self {
        Self {
            taken: Slab::new(),
            links: Vec::new(),
        }
    }

    pub(crate) fn sit(&mut self, place: Place, body: T) -> u32 {
        let at = self.taken.insert(Chair { place, body });
        if at == self.links.len() {
            self.links.push([Link::NONE; LISTS]);
        }
        at as u32
    }

    pub(crate) fn link(&self, at: u32, list: usize) -> Link {
        self.links[at as usize][list]
    }

    pub(crate) fn link_mut(&mut self, at: u32, list: usize) -> &mut Link {
        &mut self.links[at as usize][list]
    }

    pub(crate) fn leave(&mut self, at: u32) -> Chair<T> {
        self.taken.remove(at as usize)
    }

    pub(crate) fn get(&self, at: u32) -> Option<&Chair<T>> {
        self.taken.get(at as usize)
    }

    pub(crate) fn place(&self, at: u32) -> &Place {
        &self.taken[at as usize].place
    }

    pub(crate) fn place_mut(&mut self, at: u32) -> &mut Place {
        &mut self.taken[at as usize].place
    }

    pub(crate) fn body(&self, at: u32) -> &T {
        &self.taken[at as usize].body
    }

    pub(crate) fn body_mut(&mut self, at: u32) -> &mut T {
        &mut self.taken[at as usize].body
    }

    pub(crate) fn bodies_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.taken.iter_mut().map(|(_, chair)| &mut chair.body)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Chair<T>)> {
        self.taken.iter().map(|(at, chair)| (at as u32, chair))
    }
}
