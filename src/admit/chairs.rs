//! The chairs of the waiting room: who sits on each, and what is known of them.
//!
//! A waiter is linked into its queues by the number of its chair, so that it can be taken out from wherever
//! it waits in constant time, without a search and without a pointer.
//!
//! In a long line it is memory that takes time. So what is looked at whenever somebody comes or goes stands
//! apart, close together: whoever leaves changes the links of neighbours that are nowhere near, and need not
//! fetch their chairs for that. What few waiters have is kept only as soon as one has it.

use slab::Slab;

use super::nanos::Nanos;
use super::patience::Patience;
use super::{Tenant, Ticket};

/// The end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// A waiter's neighbours in one of the lists that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Link {
    /// Of one that is in no list.
    pub(crate) const APART: Self = Self {
        prev: NONE - 1,
        next: NONE - 1,
    };
}

/// The list that the discipline walks.
pub(crate) const QUEUE: usize = 0;
/// The list of all waiters of a level, over all lanes, in the order of arrival.
pub(crate) const ARRIVALS: usize = 1;
/// The list of all waiters of a level in one section, in the order of arrival.
pub(crate) const SECTION: usize = 2;

/// Who came when: the instant, then the order in which they sat down.
pub(crate) type Came = (Nanos, u64);

/// Where a waiter stands in line. Never across two cache lines.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Place {
    /// Tells this waiter from earlier ones on the same chair.
    pub(crate) seq: u64,
    /// When it came. Never less than for those who sat down before, unless it comes back.
    pub(crate) since: Nanos,
    queue: Link,
    pub(crate) lane: u32,
    /// The level it came with.
    pub(crate) priority: u8,
    /// The level it waits in now.
    pub(crate) level: u8,
    /// Whether whoever sat down here still waits.
    pub(crate) waits: bool,
}

impl Place {
    /// What orders it among all who wait, wherever nothing else does.
    #[inline]
    pub(crate) fn came(&self) -> Came {
        (self.since, self.seq)
    }

    /// How many levels it has risen.
    #[inline]
    pub(crate) fn risen(&self) -> u8 {
        self.priority - self.level
    }
}

/// What the room keeps of a ticket.
#[derive(Debug)]
pub(crate) struct Stub {
    pub(crate) patience: Patience,
    /// When its wait ends, as the room is furnished now.
    pub(crate) end: Nanos,
    /// The tenant's flow within the lane, under `Fair`.
    pub(crate) flow: u32,
    cost: u32,
    pub(crate) may_wait: bool,
}

impl Stub {
    /// What it takes from its tenant's share.
    pub(crate) fn cost(&self) -> u128 {
        u128::from(self.cost.max(1))
    }
}

/// A chair: what the room keeps of the waiter's ticket, and what it brought.
#[derive(Debug)]
struct Chair<T> {
    stub: Stub,
    body: T,
}

/// All chairs that are taken, by number.
#[derive(Debug)]
pub(crate) struct Chairs<T> {
    places: Vec<Place>,
    taken: Slab<Chair<T>>,
    /// Up to the last chair on which somebody sat who had one.
    tenants: Vec<Tenant>,
    /// The links of `ARRIVALS` and of `SECTION`, up to the last chair whose waiter was in such a list.
    links: [Vec<Link>; 2],
}

static NOBODY: Tenant = Tenant::NOBODY;

impl<T> Chairs<T> {
    pub(crate) fn new() -> Self {
        Self {
            places: Vec::new(),
            taken: Slab::new(),
            tenants: Vec::new(),
            links: [const { Vec::new() }; 2],
        }
    }

    /// Seats the holder of a ticket. It does not wait yet.
    #[inline]
    pub(crate) fn sit(
        &mut self,
        (since, seq): Came,
        ticket: Ticket,
        patience: Patience,
        end: Nanos,
        body: T,
    ) -> u32 {
        let stub = Stub {
            patience,
            end,
            flow: NONE,
            cost: ticket.cost,
            may_wait: ticket.may_wait,
        };
        let at = self.taken.insert(Chair { stub, body });
        let place = Place {
            seq,
            since,
            queue: Link::APART,
            lane: NONE,
            priority: ticket.priority.0,
            level: ticket.priority.0,
            waits: false,
        };
        match self.places.get_mut(at) {
            Some(old) => *old = place,
            None => self.places.push(place),
        }
        if !ticket.tenant.as_bytes().is_empty() {
            if at >= self.tenants.len() {
                self.tenants.resize(at + 1, Tenant::NOBODY);
            }
            self.tenants[at] = ticket.tenant;
        }
        at as u32
    }

    /// Whoever sat there leaves.
    #[inline]
    pub(crate) fn leave(&mut self, at: u32) -> T {
        if let Some(tenant) = self.tenants.get_mut(at as usize) {
            *tenant = Tenant::NOBODY;
        }
        self.taken.remove(at as usize).body
    }

    #[inline]
    pub(crate) fn link(&self, at: u32, list: usize) -> Link {
        match list {
            QUEUE => self.places[at as usize].queue,
            other => self.links[other - 1][at as usize],
        }
    }

    #[inline]
    pub(crate) fn link_mut(&mut self, at: u32, list: usize) -> &mut Link {
        match list {
            QUEUE => &mut self.places[at as usize].queue,
            other => {
                let links = &mut self.links[other - 1];
                if at as usize >= links.len() {
                    links.resize(at as usize + 1, Link::APART);
                }
                &mut links[at as usize]
            }
        }
    }

    #[inline]
    pub(crate) fn place(&self, at: u32) -> &Place {
        &self.places[at as usize]
    }

    #[inline]
    pub(crate) fn place_mut(&mut self, at: u32) -> &mut Place {
        &mut self.places[at as usize]
    }

    /// Whether who sat down there as number `seq` waits still.
    #[inline]
    pub(crate) fn still_waits(&self, at: u32, seq: u64) -> bool {
        let place = self.places.get(at as usize);
        place.is_some_and(|place| place.seq == seq && place.waits)
    }

    /// Everyone who waits.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u32, &Place)> {
        let all = (0..).zip(&self.places);
        all.filter(|(_, place)| place.waits)
    }

    #[inline]
    pub(crate) fn stub(&self, at: u32) -> &Stub {
        &self.taken[at as usize].stub
    }

    #[inline]
    pub(crate) fn stub_mut(&mut self, at: u32) -> &mut Stub {
        &mut self.taken[at as usize].stub
    }

    #[inline]
    pub(crate) fn tenant(&self, at: u32) -> &Tenant {
        self.tenants.get(at as usize).unwrap_or(&NOBODY)
    }

    #[inline]
    pub(crate) fn body(&self, at: u32) -> &T {
        &self.taken[at as usize].body
    }

    #[inline]
    pub(crate) fn body_mut(&mut self, at: u32) -> &mut T {
        &mut self.taken[at as usize].body
    }

    pub(crate) fn bodies_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.taken.iter_mut().map(|(_, chair)| &mut chair.body)
    }
}
