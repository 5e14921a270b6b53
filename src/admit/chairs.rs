//! The chairs of the waiting room: who sits on each, and what is known of them.
//!
//! In a long line it is memory that takes time. So what is looked at whenever somebody comes or goes stands
//! apart, close together, and what few tickets say is kept only of those.

use slab::Slab;

use super::blocks::Blocks;
use super::nanos::{NEVER, Nanos};
use super::patience::Patience;
use super::{Priority, Tenant, Ticket};

/// The number of no chair.
pub(crate) const NONE: u32 = u32::MAX;

/// The list that the discipline walks.
pub(crate) const QUEUE: usize = 0;
/// The list of those whose waits end in the order in which they began.
pub(crate) const ENDS: usize = 1;
/// The list of all waiters of a level, over all lanes, in the order of arrival.
pub(crate) const ARRIVALS: usize = 2;
/// The list of all waiters of a level in one section, in the order of arrival.
pub(crate) const SECTION: usize = 3;

/// Who came when: the instant, then the order in which they sat down.
pub(crate) type Came = (Nanos, u64);

/// Where a waiter stands in line. Half a cache line, and never across two.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Place {
    /// Tells this waiter from earlier ones on the same chair.
    pub(crate) seq: u64,
    /// When it came. Never less than for those who sat down before, unless it comes back.
    pub(crate) since: Nanos,
    pub(crate) lane: u32,
    /// Where it is found in its `QUEUE` and `ENDS`.
    found: [u32; 2],
    /// The level it came with.
    pub(crate) priority: u8,
    /// The level it waits in now.
    pub(crate) level: u8,
    /// Whether whoever sat down here still waits.
    pub(crate) waits: bool,
    /// Whether its ticket says no more than this.
    is_plain: bool,
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

/// What a ticket says that is not plain.
#[derive(Debug, Clone)]
struct Terms {
    patience: Patience,
    tenant: Tenant,
    cost: u32,
    may_wait: bool,
}

/// All chairs that are taken, by number.
#[derive(Debug)]
pub(crate) struct Chairs<T> {
    places: Vec<Place>,
    bodies: Slab<T>,
    /// Up to the last chair whose ticket was not plain.
    terms: Vec<Terms>,
    /// The tenant's flow within the lane, up to the last waiter who was in one.
    flows: Vec<u32>,
    /// Where waiters are found in their `ARRIVALS` and `SECTION`, up to the last who was in such a list.
    found: [Vec<u32>; 2],
    pub(crate) blocks: Blocks,
    /// How long anybody waits.
    pub(crate) longest_wait: Nanos,
}

static NOBODY: Tenant = Tenant::NOBODY;

impl<T> Chairs<T> {
    pub(crate) fn new(longest_wait: Nanos) -> Self {
        Self {
            places: Vec::new(),
            bodies: Slab::new(),
            terms: Vec::new(),
            flows: Vec::new(),
            found: [const { Vec::new() }; 2],
            blocks: Blocks::new(),
            longest_wait,
        }
    }

    /// Where the next one sits.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        self.bodies.vacant_key() as u32
    }

    /// Seats the holder of a ticket, whose level is this one. It does not wait yet.
    #[inline]
    pub(crate) fn sit(
        &mut self,
        (since, seq): Came,
        Priority(level): Priority,
        ticket: Ticket,
        patience: Patience,
        body: T,
    ) -> u32 {
        let is_plain = patience == Patience::of_all(since)
            && ticket.tenant.as_bytes().is_empty()
            && ticket.cost == 1
            && ticket.may_wait;
        let at = self.bodies.insert(body);
        let place = Place {
            seq,
            since,
            lane: NONE,
            found: [NONE; 2],
            priority: level,
            level,
            waits: false,
            is_plain,
        };
        match self.places.get_mut(at) {
            Some(old) => *old = place,
            None => self.places.push(place),
        }
        if !is_plain {
            self.note_terms(at, ticket, patience);
        }
        at as u32
    }

    fn note_terms(&mut self, at: usize, ticket: Ticket, patience: Patience) {
        let terms = Terms {
            patience,
            tenant: ticket.tenant,
            cost: ticket.cost,
            may_wait: ticket.may_wait,
        };
        if at >= self.terms.len() {
            let nothing = Terms {
                patience: Patience::of_all(NEVER),
                tenant: Tenant::NOBODY,
                cost: 1,
                may_wait: true,
            };
            self.terms.resize(at + 1, nothing);
        }
        self.terms[at] = terms;
    }

    /// Whoever sat there leaves.
    #[inline]
    pub(crate) fn leave(&mut self, at: u32) -> T {
        if !self.place(at).is_plain {
            self.terms[at as usize].tenant = Tenant::NOBODY;
        }
        let body = self.bodies.remove(at as usize);
        if self.bodies.is_empty() {
            // Or the next to come would sit all over the place, in the order in which these left.
            self.bodies.clear();
        }
        body
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

    /// All lists are gone.
    pub(crate) fn clear_lists(&mut self) {
        self.blocks = Blocks::new();
    }

    /// Where the waiter is found in its list.
    #[inline]
    pub(crate) fn found(&self, at: u32, list: usize) -> u32 {
        match list {
            QUEUE | ENDS => self.places[at as usize].found[list],
            other => self.found[other - ARRIVALS][at as usize],
        }
    }

    #[inline]
    pub(crate) fn set_found(&mut self, at: u32, list: usize, number: u32) {
        match list {
            QUEUE | ENDS => self.places[at as usize].found[list] = number,
            other => put(&mut self.found[other - ARRIVALS], at, number),
        }
    }

    /// The tenant's flow within the lane.
    pub(crate) fn flow(&self, at: u32) -> u32 {
        self.flows[at as usize]
    }

    pub(crate) fn set_flow(&mut self, at: u32, flow: u32) {
        put(&mut self.flows, at, flow);
    }

    #[inline]
    fn terms(&self, at: u32) -> Option<&Terms> {
        (!self.place(at).is_plain).then(|| &self.terms[at as usize])
    }

    #[inline]
    pub(crate) fn patience(&self, at: u32) -> Patience {
        match self.terms(at) {
            Some(terms) => terms.patience,
            None => Patience::of_all(self.place(at).since),
        }
    }

    /// When the waiter's wait ends.
    #[inline]
    pub(crate) fn end(&self, at: u32) -> Nanos {
        self.patience(at).end(self.longest_wait)
    }

    pub(crate) fn tenant(&self, at: u32) -> &Tenant {
        self.terms(at).map_or(&NOBODY, |terms| &terms.tenant)
    }

    pub(crate) fn may_wait(&self, at: u32) -> bool {
        self.terms(at).is_none_or(|terms| terms.may_wait)
    }

    /// What the waiter takes from its tenant's share.
    pub(crate) fn cost(&self, at: u32) -> u128 {
        let cost = self.terms(at).map_or(1, |terms| terms.cost);
        u128::from(cost.max(1))
    }

    #[inline]
    pub(crate) fn body(&self, at: u32) -> &T {
        &self.bodies[at as usize]
    }

    #[inline]
    pub(crate) fn body_mut(&mut self, at: u32) -> &mut T {
        &mut self.bodies[at as usize]
    }

    pub(crate) fn bodies_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.bodies.iter_mut().map(|(_, body)| body)
    }
}

fn put(all: &mut Vec<u32>, at: u32, number: u32) {
    let at = at as usize;
    if at >= all.len() {
        all.resize(at + 1, NONE);
    }
    all[at] = number;
}
