//! Without a bound on who waits, a saturated service collects requests until it dies of them; without an
//! order, whoever polls first wins.
//!
//! [`WaitingRoom`] is a bounded, ordered set of waiting tickets, over all lanes. It is a state machine: events
//! come in as calls, time comes in as an argument, and whoever's wait ended comes out in a [`WakeList`]. It
//! knows no async, no locks and no clock, so that a test can drive it through a million random events.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use super::alarm::Alarms;
use super::chairs::{ARRIVALS, Chairs};
use super::departure_rate::DepartureRate;
use super::discipline::Standing;
use super::ends::Ends;
use super::lanes::Lanes;
use super::line::ByLevel;
use super::nanos::{Epoch, Nanos};
use super::patience::longest_wait;
use super::sections::Sections;
use super::trim::HighWater;
use super::{Capacity, RejectReason, RoomStats, Tenant, WaitingRoomConfig, WakeList};

/// What an arrival gets.
pub enum AdmitOutcome<C: Capacity> {
    /// A slot, at once.
    Leased(C::Lease),
    /// A chair.
    Queued(WaiterId),
    /// Neither.
    Rejected(RejectReason<C::Unservable>),
}

impl<C: Capacity> fmt::Debug for AdmitOutcome<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leased(_) => f.write_str("Leased"),
            Self::Queued(key) => f.debug_tuple("Queued").field(key).finish(),
            Self::Rejected(why) => f.debug_tuple("Rejected").field(why).finish(),
        }
    }
}

/// Names a waiter until its answer has been collected or it was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WaiterId {
    pub(super) at: u32,
    pub(super) seq: u64,
}

impl WaiterId {
    /// On which chair the waiter sits. It is another's once the key is void.
    #[cfg(feature = "batch")]
    #[inline]
    pub(crate) fn chair(self) -> u32 {
        self.at
    }
}

pub(crate) type Answer<C> =
    Result<<C as Capacity>::Lease, RejectReason<<C as Capacity>::Unservable>>;

/// What a waiter brought, and what became of it.
pub(crate) struct Waiter<C: Capacity, W> {
    pub(crate) demand: C::Demand,
    pub(crate) state: State<C, W>,
}

pub(crate) enum State<C: Capacity, W> {
    Waiting(Option<W>),
    Leased(C::Lease),
    Rejected(RejectReason<C::Unservable>),
}

impl<C: Capacity, W> State<C, W> {
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }
}

/// The bounded, ordered set of waiting tickets.
///
/// `W` is what a waiter leaves to be told by: a waker, or nothing in a test.
///
/// # Panics
///
/// Methods that take a [`WaiterId`] may panic if it is void, or take it for that of whoever has the chair by then, unless
/// they say otherwise: its answer was collected, or it was cancelled or taken.
///
/// What changes with every waiter stands first and close together: where two threads take turns, each line of memory
/// that one has written has to be fetched by the other.
#[repr(C)]
pub struct WaitingRoom<C: Capacity, W> {
    pub(super) waiting: usize,
    pub(super) seq: u64,
    /// When the latest of all who ever sat down came, returners aside: nobody after it came before.
    pub(super) latest: u64,
    pub(super) drain: DepartureRate,
    pub(super) chairs: Chairs<Waiter<C, W>>,
    /// The lane of all who wait, if they are served in the order in which they come and no more is asked.
    pub(super) express: Option<u32>,
    /// Chairs promised to requests that have not arrived.
    pub(super) reserved: usize,
    pub(super) closed: bool,
    /// The capacity panicked when it was asked for a slot for a waiter: one may be free that no waiter was given.
    pub(super) missed_slot: bool,
    /// Whether it is to be known who came first of all, whether or not anybody is displaced.
    pub(super) tracks_oldest: bool,
    pub(super) config: WaitingRoomConfig,
    pub(super) lanes: Lanes<C::Lane>,
    pub(super) ends: Ends,
    pub(super) rises: Alarms,
    /// All waiters by level, in the order of arrival, where one may have to get up for another, or it is asked who
    /// came first.
    pub(super) arrivals: ByLevel<ARRIVALS>,
    pub(super) sections: Sections,
    /// How many of each tenant wait, if that is limited.
    pub(super) tenants: HashMap<Tenant, usize>,
    pub(super) stats: RoomStats,
    pub(super) pumps: u64,
    pub(super) high_water: HighWater,
    /// What instants are measured from.
    pub(super) epoch: Epoch,
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// An empty room.
    #[must_use]
    pub fn new(config: WaitingRoomConfig, now: Instant) -> Self {
        Self {
            chairs: Chairs::new(longest_wait(&config)),
            lanes: Lanes::new(&config),
            express: None,
            arrivals: ByLevel::new(config.levels.count()),
            sections: Sections::new(config.levels.count()),
            tenants: HashMap::new(),
            ends: Ends::new(),
            rises: Alarms::default(),
            drain: DepartureRate::default(),
            stats: RoomStats::default(),
            waiting: 0,
            reserved: 0,
            closed: false,
            missed_slot: false,
            tracks_oldest: false,
            pumps: 0,
            high_water: HighWater::default(),
            seq: 0,
            latest: 0,
            epoch: Epoch(now),
            config,
        }
    }

    /// Leaves `note` for the waiter to be told by. Gives back the note that it replaces.
    ///
    /// # Errors
    ///
    /// `note` itself, if the wait is over.
    pub fn set_waker(&mut self, key: WaiterId, note: W) -> Result<Option<W>, W> {
        match &mut self.chairs.body_mut(key.at).state {
            State::Waiting(old) => Ok(old.replace(note)),
            _ => Err(note),
        }
    }

    /// The note that the waiter left, if it still waits.
    pub fn note(&self, key: WaiterId) -> Option<&W> {
        match &self.chairs.body(key.at).state {
            State::Waiting(note) => note.as_ref(),
            _ => None,
        }
    }

    /// Takes the waiter's answer, if there is one; its key is void then.
    pub fn take_outcome(
        &mut self,
        key: WaiterId,
    ) -> Option<Result<C::Lease, RejectReason<C::Unservable>>> {
        let (answer, _) = self.take_answer(key)?;
        Some(answer)
    }

    /// As [`collect`](Self::collect), with the demand.
    pub(crate) fn take_answer(&mut self, key: WaiterId) -> Option<(Answer<C>, C::Demand)> {
        if self.chairs.body(key.at).state.is_waiting() {
            return None;
        }
        let Waiter { demand, state } = self.chairs.leave(key.at);
        self.trim_if_empty();
        match state {
            State::Leased(lease) => Some((Ok(lease), demand)),
            State::Rejected(why) => Some((Err(why), demand)),
            State::Waiting(_) => None,
        }
    }

    /// The waiter goes away. A slot that it was given already comes back, to be released; so does the note
    /// that it left.
    pub fn cancel(&mut self, key: WaiterId) -> (Option<C::Lease>, Option<W>) {
        match self.remove(key).state {
            State::Waiting(note) => (None, note),
            State::Leased(lease) => (Some(lease), None),
            State::Rejected(_) => (None, None),
        }
    }

    /// As [`cancel`](Self::cancel), with all that is left of the waiter.
    pub(crate) fn remove(&mut self, key: WaiterId) -> Waiter<C, W> {
        if self.chairs.body(key.at).state.is_waiting() {
            self.unlink(key.at);
            self.stats.cancelled += 1;
        }
        let waiter = self.chairs.leave_early(key.at);
        self.trim_if_empty();
        if matches!(waiter.state, State::Leased(_)) {
            self.stats.unclaimed += 1;
            self.stats.cancelled += 1;
        }
        waiter
    }

    /// Whether the capacity panicked since the last call when it was asked for a slot for a waiter. Then a slot may be
    /// free that no waiter was given, and [`grown`](Self::grown) finds it.
    pub(crate) fn take_missed_slot(&mut self) -> bool {
        std::mem::take(&mut self.missed_slot)
    }

    /// Whether the waiter's ticket lets it wait.
    #[must_use]
    pub fn may_wait(&self, key: WaiterId) -> bool {
        self.chairs.may_wait(key.at)
    }

    /// Answers a waiter with `why`, if it still waits.
    pub fn turn_away(
        &mut self,
        key: WaiterId,
        why: RejectReason<C::Unservable>,
        woken: &mut WakeList<W>,
    ) {
        if self.chairs.body(key.at).state.is_waiting() {
            self.answer(key.at, why, woken);
        }
    }

    /// Promises a chair of the room to a request that will arrive, if one is free. The section in which that
    /// request is to wait may be full nevertheless.
    pub fn reserve(&mut self) -> bool {
        let free = self.has_chair();
        self.reserved += usize::from(free);
        free
    }

    /// Takes a promise back, once for each [`reserve`](Self::reserve) that was `true`: the request arrives
    /// now, or never will.
    pub fn unreserve(&mut self) {
        self.reserved -= 1;
    }

    /// Whether a chair of the room is free.
    #[must_use]
    #[inline]
    pub fn has_chair(&self) -> bool {
        self.waiting + self.reserved < self.config.max_size
    }

    /// Whether requests wait on every chair, so that whoever comes is rejected for that alone, whatever its
    /// ticket says. Of the order in which reasons are looked for, it is the first then; a section that is full,
    /// too, is the same reason.
    pub(crate) fn is_full_for_all(&self) -> bool {
        let is_limited_by_ticket =
            self.config.displace || self.config.max_size_per_tenant.is_some();
        self.waiting > 0 && !is_limited_by_ticket && !self.has_chair()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Whether nobody may wait any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// What instants are measured from: when the room was made.
    #[must_use]
    pub fn epoch(&self) -> Instant {
        self.epoch.0
    }

    /// Who goes before everyone else.
    #[must_use]
    pub fn head(&self) -> Option<WaiterId> {
        let at = self.lanes.first(&self.chairs)?;
        let seq = self.chairs.place(at).seq;
        Some(WaiterId { at, seq })
    }

    /// Takes the note that a waiter left.
    pub fn take_waker(&mut self, key: WaiterId) -> Option<W> {
        match &mut self.chairs.body_mut(key.at).state {
            State::Waiting(note) => note.take(),
            _ => None,
        }
    }

    /// Takes the notes of everyone who waits: they are to look again.
    pub fn take_wakers(&mut self, woken: &mut WakeList<W>) {
        for waiter in self.chairs.bodies_mut() {
            if let State::Waiting(note) = &mut waiter.state {
                note.take().into_iter().for_each(|note| woken.push(note));
            }
        }
    }

    /// How the room is furnished.
    #[must_use]
    pub fn config(&self) -> &WaitingRoomConfig {
        &self.config
    }

    /// What became of those who arrived.
    #[must_use]
    pub fn stats(&self) -> RoomStats {
        self.stats
    }

    /// Where the waiter stands among those who compete for the same slots, in the order in which they would
    /// be served now: 1 is next. `None` if it no longer waits. O(n log n).
    ///
    /// Promotions that are due count once the room [knows of the time](Self::keep_time).
    #[must_use]
    pub fn position(&self, key: WaiterId) -> Option<usize> {
        if !self.chairs.still_waits(key.at, key.seq) {
            return None;
        }
        let order = self
            .lanes
            .forecast(&self.chairs, self.chairs.place(key.at).lane);
        order.iter().position(|&at| at == key.at).map(|i| i + 1)
    }

    /// How long it takes until `ahead` waiters have gone, from the measured drain rate; `None` as long as
    /// nothing has drained.
    #[must_use]
    pub fn estimated_wait(&self, ahead: usize) -> Option<Duration> {
        self.drain.wait_for(ahead)
    }

    /// How many leave per second with a slot. `None` before anything is known.
    pub(crate) fn drain_rate(&self) -> Option<f64> {
        self.drain.rate()
    }

    /// When to call [`expire`](Self::expire) next. Perhaps for a waiter that has left.
    #[must_use]
    pub fn next_end(&self) -> Option<Instant> {
        self.epoch.instant(self.ends.next())
    }

    /// Links a waiter in wherever it has to be found again.
    #[inline]
    pub(super) fn line_up(&mut self, at: u32, lane: u32, standing: Option<Standing>, now: Nanos) {
        self.chairs.place_mut(at).level = self.level_at(at, now);
        self.lanes
            .push(&mut self.chairs, at, lane, standing, &self.config);
        self.waiting += 1;
        self.high_water.note(self.waiting);
        self.chairs.place_mut(at).waits = true;
        self.ends.enter(&mut self.chairs, at);
        if self.config.max_size_per_tenant.is_some() {
            let tenant = self.chairs.tenant(at).clone();
            *self.tenants.entry(tenant).or_default() += 1;
        }
        self.enter(at);
        self.set_rise(at);
        self.look_for_express();
    }

    /// Links a waiter in among those of its level and section.
    #[inline]
    pub(super) fn enter(&mut self, at: u32) {
        if self.has_arrivals() || self.lanes.are_limited() {
            self.enter_lists(at);
        }
    }

    /// Whether it is kept who came in which order.
    #[inline]
    fn has_arrivals(&self) -> bool {
        self.config.displace || self.tracks_oldest
    }

    fn enter_lists(&mut self, at: u32) {
        let displace = self.config.displace;
        if self.has_arrivals() {
            self.arrivals.push(&mut self.chairs, at);
        }
        let section = self.lanes.section_at(self.chairs.place(at).lane);
        if section.max_size.is_some() {
            self.sections.enter(&mut self.chairs, section, displace, at);
        }
    }

    /// Takes a waiter out from there.
    #[inline]
    pub(super) fn leave(&mut self, at: u32) {
        if self.has_arrivals() || self.lanes.are_limited() {
            self.leave_lists(at);
        }
    }

    fn leave_lists(&mut self, at: u32) {
        let displace = self.config.displace;
        if self.has_arrivals() {
            self.arrivals.remove(&mut self.chairs, at);
        }
        let section = self.lanes.section_at(self.chairs.place(at).lane);
        if section.max_size.is_some() {
            self.sections
                .leave(&mut self.chairs, section.id, displace, at);
        }
    }

    /// Everyone who waits, the latest of the lowest level first: in the order in which they have to go if
    /// somebody must.
    pub(super) fn latest_first(&self) -> Vec<u32> {
        let waiting = self.chairs.waiting();
        let mut all: Vec<_> = waiting
            .map(|(at, place)| (place.level, place.came(), at))
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.into_iter().map(|(.., at)| at).collect()
    }

    /// Takes a waiter out of wherever it was linked in; it does not get a slot.
    #[inline]
    pub(super) fn unlink(&mut self, at: u32) {
        if !self.leave_express(at) {
            self.lanes.remove(&mut self.chairs, at);
            self.forget(at);
        }
    }

    /// Takes a waiter out of all but its lane.
    #[inline]
    pub(super) fn forget(&mut self, at: u32) {
        self.waiting -= 1;
        if self.config.max_size_per_tenant.is_some() {
            self.forget_tenant(at);
        }
        self.leave(at);
        self.chairs.place_mut(at).waits = false;
        self.ends.leave(&mut self.chairs, at);
        if self.rise_of(at).is_some() {
            self.rises.leave_behind(&self.chairs);
        }
    }

    fn forget_tenant(&mut self, at: u32) {
        let tenant = self.chairs.tenant(at);
        if let Some(waiting) = self.tenants.get_mut(tenant) {
            *waiting -= 1;
            if *waiting == 0 {
                self.tenants.remove(tenant);
            }
        }
    }

    /// Ends a wait without a slot.
    pub(super) fn answer(
        &mut self,
        at: u32,
        why: RejectReason<C::Unservable>,
        woken: &mut WakeList<W>,
    ) {
        self.unlink(at);
        self.stats.reject(&why);
        self.finish(at, State::Rejected(why), woken);
    }

    #[inline]
    pub(super) fn finish(&mut self, at: u32, state: State<C, W>, woken: &mut WakeList<W>) {
        let old = std::mem::replace(&mut self.chairs.body_mut(at).state, state);
        if let State::Waiting(Some(note)) = old {
            woken.push(note);
        }
    }
}

impl<C: Capacity, W> fmt::Debug for WaitingRoom<C, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingRoom")
            .field("config", &self.config)
            .field("waiting", &self.waiting)
            .field("counts", &self.stats)
            .finish_non_exhaustive()
    }
}
