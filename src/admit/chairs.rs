//! The chairs of the waiting room: who sits on each, and what is known of them.
//!
//! A waiter is linked into its queues by the number of its chair, so that it can be taken out from wherever
//! it waits in constant time, without a search and without a pointer.

use std::time::Instant;

use slab::Slab;

use super::Ticket;

/// The end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// A waiter's neighbours in one of the two lists that it is in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

/// The list that the discipline walks.
pub(crate) const QUEUE: usize = 0;
/// The list of all waiters of a level, over all lanes, in the order of arrival.
pub(crate) const ARRIVALS: usize = 1;

/// Where a waiter stands in line.
#[derive(Debug)]
pub(crate) struct Place {
    /// Orders arrivals, and tells this waiter from earlier ones on the same chair.
    pub(crate) seq: u64,
    pub(crate) links: [Link; 2],
    pub(crate) lane: u32,
    /// The tenant's flow within the lane, under `Fair`.
    pub(crate) flow: u32,
    /// The level it waits in now; `ticket.priority` is the one it came with.
    pub(crate) level: u8,
    pub(crate) ticket: Ticket,
    /// When its wait ends.
    pub(crate) expires: Option<Instant>,
}

impl Place {
    pub(crate) fn new(seq: u64, ticket: Ticket, expires: Option<Instant>) -> Self {
        let unlinked = Link {
            prev: NONE,
            next: NONE,
        };
        Self {
            seq,
            links: [unlinked; 2],
            lane: NONE,
            flow: NONE,
            level: ticket.priority.0,
            ticket,
            expires,
        }
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
pub(crate) struct Chairs<T>(Slab<Chair<T>>);

impl<T> Chairs<T> {
    pub(crate) fn new() -> Self {
        Self(Slab::new())
    }

    pub(crate) fn sit(&mut self, place: Place, body: T) -> u32 {
        self.0.insert(Chair { place, body }) as u32
    }

    pub(crate) fn leave(&mut self, at: u32) -> Chair<T> {
        self.0.remove(at as usize)
    }

    pub(crate) fn get(&self, at: u32) -> Option<&Chair<T>> {
        self.0.get(at as usize)
    }

    pub(crate) fn place(&self, at: u32) -> &Place {
        &self.0[at as usize].place
    }

    pub(crate) fn place_mut(&mut self, at: u32) -> &mut Place {
        &mut self.0[at as usize].place
    }

    pub(crate) fn body(&self, at: u32) -> &T {
        &self.0[at as usize].body
    }

    pub(crate) fn body_mut(&mut self, at: u32) -> &mut T {
        &mut self.0[at as usize].body
    }

    pub(crate) fn bodies_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, chair)| &mut chair.body)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Chair<T>)> {
        self.0.iter().map(|(at, chair)| (at as u32, chair))
    }
}
