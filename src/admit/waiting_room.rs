//! The waiting room: a bounded, ordered set of waiting tickets, over all lanes.
//!
//! It is a state machine: events come in as calls, time comes in as an argument, and the wakers of waiters that were
//! granted a slot or rejected come out in a [`WakeList`]. It knows no async, no locks and no clock, so a test can drive it through a million
//! random events.
//!
//! There are two rooms behind it. The [plain room](super::plain_room) serves the usual configuration, the
//! [full room](super::full_room) every other. Configuration and capacity choose the room, never a ticket; a
//! reconfiguration moves waiters from one to the other, in order.

mod lane_heads;
mod levels;
mod outcome;
mod tenants;

pub use lane_heads::LaneHead;
pub(crate) use lane_heads::Starting;
pub(crate) use outcome::Answered;

use std::fmt;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};

use super::full_room::FullRoom;
use super::nanos::{NEVER, Nanos};
use super::plain_room::PlainRoom;
use super::room::{Arrival, Room, State, Waiter, ask_on_demand, release};
use super::room_base::RoomBase;
use super::trim::{INTERVAL, KEPT};
use super::wait_queue::lanes::Lanes;
use super::wait_queue::rename_levels;
use super::waiters::{WaitBounds, WaiterId, Waiters};
use super::{
    Capacity, PoolId, Priority, RejectReason, RoomStats, Ticket, WaitingRoomConfig, WakeList,
};

/// The outcome of an arrival.
pub enum AdmitOutcome<C: Capacity> {
    /// A slot, at once.
    Leased(C::Lease),
    /// A place in the waiting room.
    Queued(WaiterId),
    /// Neither.
    Rejected(RejectReason<C::Unservable>),
}

impl<C: Capacity> fmt::Debug for AdmitOutcome<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leased(_) => f.write_str("Leased"),
            Self::Queued(id) => f.debug_tuple("Queued").field(id).finish(),
            Self::Rejected(why) => f.debug_tuple("Rejected").field(why).finish(),
        }
    }
}

/// What a room is built of: base, waiters, and the lanes of a full room.
type Parts<C, W> = (
    RoomBase,
    Waiters<Waiter<C, W>>,
    Option<Lanes<<C as Capacity>::Lane>>,
);

/// A slot, or the reason why there is none.
type Answer<C> = Result<<C as Capacity>::Lease, RejectReason<<C as Capacity>::Unservable>>;

/// The bounded, ordered set of waiting tickets in front of a capacity.
///
/// `W` is a waiter's waker: a [`Waker`](std::task::Waker) in the gate, anything in a test.
///
/// # How to use it
///
/// - A request: [`arrive`](Self::arrive). If it is queued, leave a waker with [`set_waker`](Self::set_waker), and when that
///   comes out in a [`WakeList`], [`take_outcome`](Self::take_outcome).
/// - An event: [`on_release`](Self::on_release) after a slot was given back, [`on_capacity_grown`](Self::on_capacity_grown),
///   [`on_capacity_changed`](Self::on_capacity_changed), [`on_lease_returned`](Self::on_lease_returned).
/// - Time: [`advance`](Self::advance) at [`next_timeout`](Self::next_timeout).
/// - Operation: [`reconfigure`](Self::reconfigure), [`close`](Self::close).
///
/// Wake the wakers of a [`WakeList`] after the lock around the room was released.
///
/// # A waiter's states
///
/// A waiter *waits*, or its outcome (*granted* or *rejected*) is to be taken. [`cancel`](Self::cancel) removes it in any
/// state.
///
/// # Panics
///
/// A [`WaiterId`] is invalid once its outcome was taken or the waiter was cancelled. With an invalid id a method may
/// panic or act on another waiter, unless it says otherwise. If the capacity panics in one of its methods, the room
/// stays consistent; each method says what else happens.
///
/// ```
/// use std::time::Instant;
/// use tower_triage::admit::{AdmitOutcome, Capacity, SlotPool, WaitingRoom, WakeList};
/// use tower_triage::admit::{Priority, Ticket, WaitingRoomConfig};
///
/// let (slots, now) = (SlotPool::new(1), Instant::now());
/// let mut room = WaitingRoom::new(WaitingRoomConfig::default(), now);
/// let mut wakes = WakeList::new();
/// let ticket = || Ticket::new(Priority::HIGHEST, now);
///
/// let AdmitOutcome::Leased(first) = room.arrive(&slots, ticket(), (), now, &mut wakes) else {
///     panic!("a slot is free");
/// };
/// let AdmitOutcome::Queued(second) = room.arrive(&slots, ticket(), (), now, &mut wakes) else {
///     panic!("the slot is taken");
/// };
/// room.set_waker(second, "second").unwrap();
///
/// let pool = slots.release(first);
/// room.on_release(&slots, pool, now, &mut wakes);
/// assert_eq!(wakes.into_iter().next(), Some("second"));
/// assert!(room.take_outcome(second).unwrap().is_ok());
/// ```
pub struct WaitingRoom<C: Capacity, W> {
    room: AnyRoom<C, W>,
}

/// The room that the configuration and the capacity ask for.
#[allow(
    clippy::large_enum_variant,
    reason = "one for each gate, and the plain room is spared a pointer"
)]
enum AnyRoom<C: Capacity, W> {
    Plain(PlainRoom<C, W>),
    /// Boxed, so that the enum is no larger than a plain room.
    Full(Box<FullRoom<C, W>>),
}

impl<C: Capacity, W> AnyRoom<C, W> {
    /// A room without waiters.
    fn empty(base: RoomBase) -> Self {
        match PlainRoom::<C, W>::serves(&base.config) {
            true => Self::Plain(PlainRoom::new(
                base,
                Waiters::new(WaitBounds::max_wait(NEVER)),
            )),
            false => Self::Full(Box::new(FullRoom::new(base))),
        }
    }
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// An empty room.
    #[must_use]
    pub fn new(config: WaitingRoomConfig, now: Instant) -> Self {
        Self {
            room: AnyRoom::empty(RoomBase::new(config, now)),
        }
    }

    #[inline]
    fn room(&self) -> &dyn Room<C, W> {
        match &self.room {
            AnyRoom::Plain(room) => room,
            AnyRoom::Full(room) => &**room,
        }
    }

    #[inline]
    fn room_mut(&mut self) -> &mut dyn Room<C, W> {
        // Dynamic, so that each call below is written once.
        match &mut self.room {
            AnyRoom::Plain(room) => room,
            AnyRoom::Full(room) => &mut **room,
        }
    }

    // By a match, not by the dynamic call: nearly every method looks at these.

    #[inline]
    fn base(&self) -> &RoomBase {
        match &self.room {
            AnyRoom::Plain(room) => room.base(),
            AnyRoom::Full(room) => room.base(),
        }
    }

    #[inline]
    fn waiters(&self) -> &Waiters<Waiter<C, W>> {
        match &self.room {
            AnyRoom::Plain(room) => room.waiters(),
            AnyRoom::Full(room) => room.waiters(),
        }
    }

    #[inline]
    fn waiters_mut(&mut self) -> &mut Waiters<Waiter<C, W>> {
        match &mut self.room {
            AnyRoom::Plain(room) => room.waiters_mut(),
            AnyRoom::Full(room) => room.waiters_mut(),
        }
    }

    /// The room, brought up to `now`, and `now` as a number.
    #[inline]
    fn at(&mut self, now: Instant, wakes: &mut WakeList<W>) -> (&mut dyn Room<C, W>, u64) {
        let room = self.room_mut();
        let now = room.base_mut().set_now(now);
        room.advance(now, wakes);
        (room, now)
    }

    /// A request arrives: a slot if one is free that no better waiter could use, else a place, else a reason.
    ///
    /// If the capacity panics, so does this, and the request has not arrived.
    pub fn arrive(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) -> AdmitOutcome<C> {
        let arrival = self.arrive_keeping(capacity, ticket, demand, now, wakes);
        // The demand is dropped with the panic.
        arrival.outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// [`arrive`](Self::arrive), where the demand comes back unless the request waits, also if the capacity panics.
    pub(crate) fn arrive_keeping(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) -> Arrival<C> {
        let (room, now) = self.at(now, wakes);
        let Priority(level) = room.base().config.levels.clamp(ticket.priority);
        // Before the capacity is asked: a closed room gives no slot either.
        let arrival = if room.base().is_closed {
            Arrival::ended(AdmitOutcome::Rejected(RejectReason::ShuttingDown), demand)
        } else {
            let base = room.base_mut();
            if base.waiting == 0 {
                // There is no waiter to offer slots to: those that are lent by now count as offered.
                base.reserves.begin_offer(now);
            }
            base.reserves.on_arrival(level, now);
            let arrival = room.arrive(capacity, ticket, demand, now, wakes);
            if let Ok(AdmitOutcome::Leased(lease)) = &arrival.outcome {
                let base = room.base_mut();
                base.overload.on_served(level);
                if base.reserves.may_lend() {
                    base.on_leased(capacity, level, lease);
                }
            }
            arrival
        };
        // Waiters that are rejected later are counted where that happens.
        if let Ok(AdmitOutcome::Rejected(why)) = &arrival.outcome {
            room.base_mut().on_rejected(level, why);
        }
        arrival
    }

    /// Gives a waiter that waits another ticket and another demand. Returns `false` if it does not wait any more; then
    /// nothing has changed. If it does, `demand` is the one that it had, so that the caller can drop it without a lock.
    ///
    /// It moves to the place of a request with this ticket that arrives as [requeued](Ticket::requeued): the ticket's arrival
    /// decides, `now` without one, and of equal arrivals the order in which they were queued. O(log n). Its waker stays.
    ///
    /// No bound refuses it: it takes a place even if none is free, until a reconfiguration. But its wait is over if that is what the new ticket says: by its deadline or, unless it is
    /// [patient](Ticket::patient), by `max_wait` from its arrival. If a slot is free for it in its new place, it is granted
    /// at once. [`wait`](Ticket::wait) is not looked at, because it waits already.
    ///
    /// If the capacity panics, so does this. The waiter then waits on, with the one ticket or the other.
    ///
    /// ```
    /// use std::time::Instant;
    /// use tower_triage::admit::{AdmitOutcome, Capacity, SlotPool, WaitingRoom, WakeList};
    /// use tower_triage::admit::{Priority, Ticket, WaitingRoomConfig};
    ///
    /// let (slots, now) = (SlotPool::new(1), Instant::now());
    /// let mut room = WaitingRoom::new(WaitingRoomConfig::default(), now);
    /// let mut wakes = WakeList::new();
    /// let ticket = |level| Ticket::new(Priority(level), now);
    /// let arrivals = [0, 0, 1].map(|level| room.arrive(&slots, ticket(level), (), now, &mut wakes));
    /// let [AdmitOutcome::Leased(running), AdmitOutcome::Queued(first), AdmitOutcome::Queued(second)] = arrivals else {
    ///     panic!("one slot");
    /// };
    /// room.set_waker(first, "first").unwrap();
    /// assert!(room.set_ticket(&slots, first, ticket(1).patient(), &mut (), now, &mut wakes));
    /// assert!(room.set_ticket(&slots, second, ticket(0), &mut (), now, &mut wakes));
    /// assert_eq!((room.position(second), room.position(first)), (Some(1), Some(2)));
    /// # slots.release(running);
    /// ```
    pub fn set_ticket(
        &mut self,
        capacity: &C,
        id: WaiterId,
        ticket: Ticket,
        demand: &mut C::Demand,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) -> bool {
        let (room, now) = self.at(now, wakes);
        if !room.waiters().waits(id) {
            return false;
        }
        let Priority(level) = room.base().config.levels.clamp(ticket.priority);
        room.replace_ticket(capacity, id.idx, ticket, demand, now);
        room.base_mut().reserves.on_arrival(level, now);
        // First: its wait may be over.
        room.advance(now, wakes);
        room.retry(capacity, id, wakes);
        let (meta, waiter) = (room.waiters().meta(id.idx), room.waiters().payload(id.idx));
        if let State::Leased(lease) = &waiter.state
            && room.base().waiting > 0
        {
            ask_on_demand(capacity, |it| it.on_overtake(lease, Priority(meta.level)));
        }
        true
    }

    /// A slot of `pool` came back: it goes to the best waiter that it can serve. Looks at no lane that `pool` does not
    /// serve.
    pub fn on_release(
        &mut self,
        capacity: &C,
        pool: PoolId,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) {
        let (room, _) = self.at(now, wakes);
        room.on_release(capacity, pool, wakes);
    }

    /// A lease that no request took comes back, as in [`on_release`](Self::on_release).
    pub fn on_lease_returned(
        &mut self,
        capacity: &C,
        lease: C::Lease,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) {
        // It was counted as given.
        self.room_mut().base_mut().stats.unclaimed += 1;
        match release(capacity, lease) {
            Some(pool) => self.on_release(capacity, pool, now, wakes),
            // It panicked.
            None => self.on_capacity_grown(capacity, now, wakes),
        }
    }

    /// The capacity may have more slots: they go to the best waiters.
    pub fn on_capacity_grown(&mut self, capacity: &C, now: Instant, wakes: &mut WakeList<W>) {
        let (room, _) = self.at(now, wakes);
        room.on_capacity_grown(capacity, wakes);
    }

    /// The capacity's lanes, pools or partitions changed: every waiter moves to the lane that its demand has now. Waiters
    /// that have no place in their partition any more are rejected in the order in which a full partition evicts.
    ///
    /// If the capacity panics, so does this, and nothing has changed.
    pub fn on_capacity_changed(&mut self, capacity: &C, now: Instant, wakes: &mut WakeList<W>) {
        let (room, now) = self.at(now, wakes);
        room.on_capacity_changed(capacity, now, wakes);
    }

    /// Changes the configuration. Every waiter keeps its place in the order; those that have no place any more are
    /// rejected in the order in which a full room evicts ([`displace`](WaitingRoomConfig::displace)).
    ///
    /// A level keeps its waiters by name; waiters of a name that is gone get the default level. If the capacity panics,
    /// so does this, and nothing has changed.
    pub fn reconfigure(
        &mut self,
        capacity: &C,
        config: WaitingRoomConfig,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) {
        let (_, now) = self.at(now, wakes);
        let is_plain = PlainRoom::<C, W>::serves(&config);
        // Asked before anything changes: the capacity is user code and may panic. A plain room has no lanes to ask for.
        let lanes = (!is_plain).then(|| FullRoom::ask_lanes(capacity, self.waiters()));
        let (mut base, mut waiters, old_lanes) = self.take_parts();
        // While the old names are known.
        rename_levels(&mut waiters, &base.config.levels, &config.levels);
        base.set_config(config);
        self.room = match lanes {
            None => AnyRoom::Plain(PlainRoom::new(base, waiters)),
            Some(lanes) => AnyRoom::Full(Box::new(FullRoom::rebuild(
                base, waiters, lanes, old_lanes, now,
            ))),
        };
        let room = self.room_mut();
        // In this order: no waiter is evicted in place of an expired one, and none is granted a slot that is to be evicted.
        room.advance(now, wakes);
        room.evict_excess(wakes);
        // The best waiter of the new order may fit a slot that the best of the old one did not.
        room.on_capacity_grown(capacity, wakes);
    }

    /// Takes the room apart, to build another of its parts. Only a full room has lanes.
    fn take_parts(&mut self) -> Parts<C, W> {
        // Stands in until the caller sets the new room. Nothing between the two can panic.
        let stand_in = RoomBase::new(WaitingRoomConfig::default(), self.epoch());
        match std::mem::replace(&mut self.room, AnyRoom::empty(stand_in)) {
            AnyRoom::Plain(room) => {
                let (base, waiters) = room.into_parts();
                (base, waiters, None)
            }
            AnyRoom::Full(room) => {
                let (base, waiters, lanes) = room.into_parts();
                (base, waiters, Some(lanes))
            }
        }
    }

    /// Stops accepting: every waiter and every later arrival is rejected as shutting down.
    pub fn close(&mut self, wakes: &mut WakeList<W>) {
        let room = self.room_mut();
        room.base_mut().is_closed = true;
        // The latest of the lowest level first.
        for idx in room.waiters().latest_first() {
            room.reject_idx(idx, RejectReason::ShuttingDown, wakes);
        }
    }

    /// Brings the room up to `now`: waiters that have expired are rejected, and those that are due are promoted. To be
    /// called at [`next_timeout`](Self::next_timeout), or at any other time.
    ///
    /// Returns whether waiters may use slots from now on that were kept for a level: because they are lent, or because a
    /// waiter was promoted to that level. Then call [`on_capacity_grown`](Self::on_capacity_grown).
    pub fn advance(&mut self, now: Instant, wakes: &mut WakeList<W>) -> bool {
        let (room, now) = self.at(now, wakes);
        room.base_mut().reserves.begin_offer(now)
    }

    /// [`advance`](Self::advance), where kept slots that waiters may use from now on are left to the next call of that.
    pub(crate) fn advance_waits(&mut self, now: Instant, wakes: &mut WakeList<W>) {
        self.at(now, wakes);
    }

    /// When to call [`advance`](Self::advance) next. `None` if no wait ends, and no kept slots will be lent or be for a
    /// waiter that is promoted.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timeout(self.room().next_timeout())
    }

    /// When to call [`advance`](Self::advance) at the latest for the sake of this waiter. `None` if that is not needed.
    pub(crate) fn timeout_of(&self, id: WaiterId) -> Option<Instant> {
        self.timeout(self.waiters().timeout(id.idx))
    }

    /// This end of a wait, or the instant at which waiters may use kept slots that they may not use now, if that is earlier:
    /// those are lent, or a waiter is promoted.
    fn timeout(&self, end: Nanos) -> Option<Instant> {
        let base = self.base();
        let offer = match base.waiting == 0 || base.reserves.is_empty() {
            true => NEVER,
            false => base.reserves.next_offer().min(self.room().next_promotion()),
        };
        base.epoch.instant(end.min(offer))
    }

    /// Sets the waiter's waker. Returns the one that it replaces.
    ///
    /// # Errors
    ///
    /// `waker` itself, if the wait is over.
    pub fn set_waker(&mut self, id: WaiterId, waker: W) -> Result<Option<W>, W> {
        match &mut self.waiters_mut().payload_mut(id.idx).state {
            State::Waiting(old) => Ok(old.replace(waker)),
            _ => Err(waker),
        }
    }

    /// The waiter's waker, if one is set and it still waits.
    pub fn waker(&self, id: WaiterId) -> Option<&W> {
        match &self.waiters().payload(id.idx).state {
            State::Waiting(waker) => waker.as_ref(),
            _ => None,
        }
    }

    /// Takes the waiter's waker, if one is set and it still waits.
    pub fn take_waker(&mut self, id: WaiterId) -> Option<W> {
        match &mut self.waiters_mut().payload_mut(id.idx).state {
            State::Waiting(waker) => waker.take(),
            _ => None,
        }
    }

    /// Takes the wakers of all waiters, so that each looks again.
    pub fn take_wakers(&mut self, wakes: &mut WakeList<W>) {
        for waiter in self.waiters_mut().payloads_mut() {
            if let State::Waiting(waker) = &mut waiter.state {
                waker.take().into_iter().for_each(|waker| wakes.push(waker));
            }
        }
    }

    /// Looks for a slot for a waiter that still waits though its waker was taken. To be called by the waiter's own task,
    /// because the capacity may panic.
    pub(crate) fn retry(
        &mut self,
        capacity: &C,
        id: WaiterId,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) {
        let (room, _) = self.at(now, wakes);
        room.retry(capacity, id, wakes);
    }

    /// Whether the capacity panicked over a waiter's slot since the last call. Then a slot may be free that no waiter was
    /// granted, and [`on_capacity_grown`](Self::on_capacity_grown) finds it.
    pub(crate) fn take_missed_slot(&mut self) -> bool {
        std::mem::take(self.room_mut().missed_slot())
    }

    /// Reserves a place for a request that will arrive, and says whether one was free. The request's partition may still
    /// be full when it arrives.
    pub fn reserve(&mut self) -> bool {
        self.room_mut().base_mut().reserve()
    }

    /// Ends a reservation, once for each [`reserve`](Self::reserve) that was `true`: the request arrives now, or never
    /// will.
    pub fn unreserve(&mut self) {
        // Its place is free before the request arrives, so that `arrive` finds it.
        self.room_mut().base_mut().reserved -= 1;
    }

    /// Whether one more request may wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.base().has_room()
    }

    /// If the room is full: the level from which on, downwards, every arrival that finds no slot is rejected as full,
    /// whatever else its ticket says.
    pub(crate) fn full_from(&self) -> Option<u8> {
        let base = self.base();
        if !base.is_full() {
            return None;
        }
        match base.config.displace {
            // A waiter is displaced only by a higher level than its own.
            true => {
                let lowest = self.room().lowest()?;
                Some(self.waiters().meta(lowest).level)
            }
            false => Some(0),
        }
    }

    /// How many requests wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.base().waiting
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.base().waiting == 0
    }

    /// Whether the room has stopped accepting.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.base().is_closed
    }

    /// The instant from which the room measures time: that of its making.
    #[must_use]
    pub fn epoch(&self) -> Instant {
        self.base().epoch.0
    }

    /// Whether the waiter still waits. An invalid id does not.
    #[must_use]
    pub fn waits(&self, id: WaiterId) -> bool {
        self.waiters().waits(id)
    }

    /// The waiter that goes before all others.
    #[must_use]
    pub fn head(&self) -> Option<WaiterId> {
        self.room().head()
    }

    /// The waiter's position among those that compete for the same slots, in the order in which they would be served now:
    /// 1 is next. `None` if it no longer waits. O(n log n).
    ///
    /// Promotions count from the [`advance`](Self::advance) after they were due.
    #[must_use]
    pub fn position(&self, id: WaiterId) -> Option<usize> {
        self.waits(id).then(|| self.room().position(id))?
    }

    /// The time until `ahead` waiters have left with a slot, by the measured departure rate; `None` until that was
    /// measured.
    #[must_use]
    pub fn estimated_wait(&self, ahead: usize) -> Option<Duration> {
        self.base().estimated_wait(ahead)
    }

    /// How many waiters leave with a slot per second. `None` until that was measured.
    pub(crate) fn departure_rate(&self) -> Option<f64> {
        self.base().overload.total_per_second()
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &WaitingRoomConfig {
        &self.base().config
    }

    /// How many requests were rejected, by reason, and how many were cancelled.
    #[must_use]
    pub fn stats(&self) -> RoomStats {
        self.base().stats
    }

    /// Returns the end of the wait of a request with this arrival and deadline that has a slot of `pool`, and the reason
    /// then. `None` without a bound.
    pub(crate) fn end_of_wait(
        &self,
        arrival: Instant,
        deadline: Option<Instant>,
        is_patient: bool,
        pool: PoolId,
        now: Instant,
    ) -> Option<(Instant, RejectReason<C::Unservable>)> {
        self.base()
            .end_of_wait(arrival, deadline, is_patient, pool, now)
    }

    /// Gives memory back, or says when to look again; `None`: not before another request waits. For a timer that has
    /// nothing else to do.
    pub(crate) fn trim_idle(&mut self, now: Instant) -> Option<Instant> {
        let room = self.room_mut();
        room.trim_if_empty();
        // Entries with an outcome to be taken kept the memory: look again.
        let keeps_more = room.base().waiting == 0 && room.waiters().capacity() > KEPT;
        keeps_more.then(|| now + INTERVAL)
    }
}

impl<C: Capacity, W> fmt::Debug for WaitingRoom<C, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingRoom")
            .field("config", self.config())
            .field("waiting", &self.len())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
