//! The chairs of the waiting room: who sits on each, and what is known of them.
//!
//! In a long line it is memory that takes time. So what is looked at whenever somebody comes or goes stands
//! apart, close together, and what few tickets say is kept only of those.

use super::blocks::Blocks;
use super::nanos::{NEVER, Nanos};
use super::patience::Patience;
use super::rows::Rows;
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

/// Where a waiter stands in line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Tells this waiter from earlier ones on the same chair.
    pub(crate) seq: u64,
    /// When it came, or as good as that if it is not known. Never less than for those who sat down before, unless it
    /// comes back.
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
    wording: Wording,
}

/// What a waiter's ticket says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wording {
    /// How urgent it is, and since when. It came `since` then.
    Plain,
    /// Only how urgent it is. It came when nobody asked for the time.
    Undated,
    /// More than that.
    Special,
}

impl Place {
    const NOBODY: Self = Self {
        seq: 0,
        since: 0,
        lane: NONE,
        found: [NONE; 2],
        priority: 0,
        level: 0,
        waits: false,
        wording: Wording::Plain,
    };

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

/// A chair. What is small takes a line of memory, and no more.
#[derive(Debug)]
#[repr(C, align(64))]
struct Seat<T> {
    place: Place,
    body: Option<T>,
}

/// All chairs that are taken, by number.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Chairs<T> {
    rows: Rows,
    pub(crate) blocks: Blocks,
    seats: Vec<Seat<T>>,
    /// How long anybody waits.
    pub(crate) longest_wait: Nanos,
    /// Up to the last chair whose ticket was not plain.
    terms: Vec<Terms>,
    /// The tenant's flow within the lane, up to the last waiter who was in one.
    flows: Vec<u32>,
    /// Where waiters are found in their `ARRIVALS` and `SECTION`, up to the last who was in such a list.
    found: [Vec<u32>; 2],
}

static NOBODY: Tenant = Tenant::NOBODY;

impl<T> Chairs<T> {
    pub(crate) fn new(longest_wait: Nanos) -> Self {
        Self {
            seats: Vec::new(),
            rows: Rows::new(),
            terms: Vec::new(),
            flows: Vec::new(),
            found: [const { Vec::new() }; 2],
            blocks: Blocks::new(),
            longest_wait,
        }
    }

    /// A chair for one of that level, who sits down on it next.
    #[inline(always)]
    pub(crate) fn take(&mut self, Priority(level): Priority) -> u32 {
        self.rows.take(level)
    }

    /// Seats the holder of a ticket, whose level is this one. It does not wait yet.
    #[inline]
    pub(crate) fn sit(
        &mut self,
        at: u32,
        (since, seq): Came,
        Priority(level): Priority,
        ticket: Ticket,
        patience: Patience,
        body: T,
    ) {
        let wording = match ticket.is_plain() {
            true if patience == Patience::of_all(since) => Wording::Plain,
            true if patience == Patience::UNDATED => Wording::Undated,
            _ => Wording::Special,
        };
        let place = Place {
            seq,
            since,
            lane: NONE,
            found: [NONE; 2],
            priority: level,
            level,
            waits: false,
            wording,
        };
        self.seat(at, place, body);
        if wording == Wording::Special {
            self.note_terms(at as usize, ticket, patience);
        }
    }

    /// Seats the holder of a ticket that says nothing special, to wait in that lane and be found there in its `QUEUE`
    /// and `ENDS`.
    #[inline(always)]
    pub(crate) fn sit_plainly(
        &mut self,
        at: u32,
        (since, seq): Came,
        Priority(level): Priority,
        wording: Wording,
        (lane, found): (u32, [u32; 2]),
        body: T,
    ) {
        let place = Place {
            seq,
            since,
            lane,
            found,
            priority: level,
            level,
            waits: true,
            wording,
        };
        self.seat(at, place, body);
    }

    #[inline(always)]
    fn seat(&mut self, at: u32, place: Place, body: T) {
        if at as usize >= self.seats.len() {
            self.furnish();
        }
        let seat = &mut self.seats[at as usize];
        debug_assert!(seat.body.is_none(), "two on one chair");
        seat.place = place;
        // Nobody sits there: there is nothing to drop.
        std::mem::forget(seat.body.replace(body));
    }

    /// Puts chairs in all rows.
    #[inline(never)]
    fn furnish(&mut self) {
        let vacant = || Seat {
            place: Place::NOBODY,
            body: None,
        };
        self.seats.resize_with(self.rows.len(), vacant);
    }

    fn note_terms(&mut self, at: usize, ticket: Ticket, patience: Patience) {
        let terms = Terms {
            patience,
            tenant: ticket.tenant,
            cost: ticket.cost,
            may_wait: ticket.wait,
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

    /// Whoever sat there leaves, for it is its turn.
    #[inline(always)]
    pub(crate) fn leave(&mut self, at: u32) -> T {
        let body = self.vacate(at);
        self.rows.leave(at);
        body
    }

    /// Whoever sat there leaves, from wherever in line.
    #[inline]
    pub(crate) fn leave_early(&mut self, at: u32) -> T {
        let body = self.vacate(at);
        self.rows.leave_early(at);
        body
    }

    #[inline(always)]
    fn vacate(&mut self, at: u32) -> T {
        let seat = &mut self.seats[at as usize];
        let body = seat.body.take().expect("somebody sits there");
        if seat.place.wording == Wording::Special {
            self.terms[at as usize].tenant = Tenant::NOBODY;
        }
        body
    }

    #[inline]
    pub(crate) fn place(&self, at: u32) -> &Place {
        &self.seats[at as usize].place
    }

    #[inline]
    pub(crate) fn place_mut(&mut self, at: u32) -> &mut Place {
        &mut self.seats[at as usize].place
    }

    /// Whether who sat down there as number `seq` waits still.
    #[inline]
    pub(crate) fn still_waits(&self, at: u32, seq: u64) -> bool {
        let seat = self.seats.get(at as usize);
        seat.is_some_and(|Seat { place, .. }| place.seq == seq && place.waits)
    }

    /// Everyone who waits.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (u32, &Place)> {
        let all = (0..).zip(self.seats.iter().map(|seat| &seat.place));
        all.filter(|(_, place)| place.waits)
    }

    /// A waiter whose arrival is not known, or is still to come, arrived now.
    pub(crate) fn date(&mut self, now: Nanos) {
        for at in 0..self.seats.len() {
            let place = &mut self.seats[at].place;
            if !place.waits {
                continue;
            }
            match place.wording {
                Wording::Plain if place.since <= now => {}
                Wording::Plain | Wording::Undated => {
                    place.wording = Wording::Special;
                    self.note_terms(at, Priority::HIGHEST.into(), Patience::of_all(now));
                }
                Wording::Special => self.terms[at].patience.date(now),
            }
        }
    }

    /// Whether no place is taken: nothing waits, and all answers have been collected.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.taken() == 0
    }

    /// For how many there is memory.
    #[inline]
    pub(crate) fn room_for(&self) -> usize {
        self.seats.len()
    }

    /// Gives back the memory behind the last place that is taken. Places that are taken stay where they are.
    pub(crate) fn trim(&mut self) {
        self.rows.trim();
        let len = self.rows.len();
        self.seats.truncate(len);
        self.seats.shrink_to_fit();
        self.terms.truncate(len);
        self.terms.shrink_to_fit();
        for numbers in self.found.iter_mut().chain([&mut self.flows]) {
            numbers.truncate(len);
            numbers.shrink_to_fit();
        }
    }

    /// All lists are gone.
    pub(crate) fn clear_lists(&mut self) {
        self.blocks = Blocks::new();
    }

    /// Where the waiter is found in its list.
    #[inline]
    pub(crate) fn found(&self, at: u32, list: usize) -> u32 {
        match list {
            QUEUE | ENDS => self.seats[at as usize].place.found[list],
            other => self.found[other - ARRIVALS][at as usize],
        }
    }

    #[inline]
    pub(crate) fn set_found(&mut self, at: u32, list: usize, number: u32) {
        match list {
            QUEUE | ENDS => self.seats[at as usize].place.found[list] = number,
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
        let is_special = self.place(at).wording == Wording::Special;
        is_special.then(|| &self.terms[at as usize])
    }

    #[inline]
    pub(crate) fn patience(&self, at: u32) -> Patience {
        let place = self.place(at);
        match place.wording {
            Wording::Plain => Patience::of_all(place.since),
            Wording::Undated => Patience::UNDATED,
            Wording::Special => self.terms[at as usize].patience,
        }
    }

    /// When the wait ends of one who came then, and whose ticket says no more.
    #[inline]
    pub(crate) fn end_of(&self, arrival: Nanos) -> Nanos {
        Patience::of_all(arrival).end(self.longest_wait)
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
        self.seats[at as usize]
            .body
            .as_ref()
            .expect("somebody sits there")
    }

    #[inline]
    pub(crate) fn body_mut(&mut self, at: u32) -> &mut T {
        self.seats[at as usize]
            .body
            .as_mut()
            .expect("somebody sits there")
    }

    pub(crate) fn bodies_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.seats.iter_mut().filter_map(|seat| seat.body.as_mut())
    }
}

fn put(all: &mut Vec<u32>, at: u32, number: u32) {
    let at = at as usize;
    if at >= all.len() {
        all.resize(at + 1, NONE);
    }
    all[at] = number;
}
