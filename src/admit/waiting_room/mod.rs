//! The waiting room: a bounded, ordered set of waiting tickets over all lanes.
//!
//! The [queue](super::WaitQueue) knows the order of the waiters, and the capacity knows the slots. The [pump] connects
//! them by granting free slots to the best waiters that the slots can serve.

mod arrive;
mod end;
mod holds;
mod outcome;
mod predict;
mod pump;
mod reports;
mod tenants;
mod uncollected;

pub(crate) use arrive::Arrival;
pub use holds::HoldId;
pub(crate) use outcome::{Answered, State};
pub(crate) use reports::Starting;
pub use reports::{LaneHead, WaitingRequest};
pub(crate) use tenants::{Account, Share};

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use self::holds::Holds;
use self::outcome::Waiter;
use super::nanos::Nanos;
use super::room_base::{RoomBase, time_for};
use super::wait_queue::lanes::Scope;
use super::wait_queue::{Relink, WaitQueue};
use super::waiters::{WaiterId, Waiters};
use super::{
    Capacity, LeaseError, Partition, PoolId, PoolSet, Priority, RejectReason, RoomStats, Ticket,
    WaitingRoomConfig, WakeList, ask,
};

/// The outcome of an arrival.
pub enum AdmitOutcome<C: Capacity> {
    /// The request got a slot at once.
    Leased(C::Lease),
    /// The request waits in the room.
    Queued(WaiterId),
    /// The request was rejected for this reason.
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

/// The slot, or the reason for the rejection.
type Answer<C> = Result<<C as Capacity>::Lease, RejectReason<<C as Capacity>::Unservable>>;

/// The bounded, ordered set of waiting tickets in front of a capacity. `W` is a waiter's waker, which is a
/// [`Waker`](std::task::Waker) in the gate.
///
/// A request [arrives](Self::arrive). If it is queued, its task leaves a [waker](Self::set_waker), and calls
/// [`take_outcome`](Self::take_outcome) when the waker comes out in a [`WakeList`]. A waiter either *waits*, or has an
/// outcome (*granted* or *rejected*) that is yet to be taken; [`cancel`](Self::cancel) removes it in any state. Wake
/// the wakers of a [`WakeList`] after the lock around the room was released.
///
/// # Panics
///
/// A [`WaiterId`] is invalid once its outcome was taken or the waiter was cancelled. With an invalid id a method may
/// panic or act on another waiter, unless its documentation says otherwise. A panic of the capacity does not reach the
/// caller.
///
/// ```
/// use std::time::Instant;
/// use tower_triage::admit::{AdmitOutcome, Capacity, SlotPool, WaitingRoom, WakeList};
/// use tower_triage::admit::{Priority, Ticket, WaitingRoomConfig};
///
/// let (slots, now) = (SlotPool::new(1), Instant::now());
/// let mut room = WaitingRoom::new(WaitingRoomConfig::default(), now);
/// let mut wakes = WakeList::new();
/// let mut arrive = || room.arrive(&slots, Ticket::new(Priority::HIGHEST, now), (), now, &mut wakes);
/// let (AdmitOutcome::Leased(first), AdmitOutcome::Queued(second)) = (arrive(), arrive()) else {
///     panic!("one slot");
/// };
/// room.set_waker(second, "second").unwrap();
///
/// let pool = slots.release(first);
/// room.on_release(&slots, pool, now, &mut wakes);
/// assert_eq!(wakes.into_iter().next(), Some("second"));
/// assert!(room.take_outcome(second).unwrap().is_ok());
/// ```
pub struct WaitingRoom<C: Capacity, W> {
    queue: WaitQueue<C::Lane, Waiter<C, W>>,
    holds: Holds<C::Lane>,
    /// The number of the latest pump. A group of lanes that was found busy stores the number of that pump.
    pumps: u64,
    /// `true` if a waiter returned to its lane after its tenant was at its limit, so that any slot may be free for it.
    unparked: bool,
    /// The number of waiters that were granted a slot and have not taken it.
    uncollected: usize,
    /// The earliest instant of the next look for slots that their waiters do not take.
    next_uncollected_look: Nanos,
}

impl<C: Capacity, W> WaitingRoom<C, W> {
    /// Creates an empty room.
    #[must_use]
    pub fn new(config: WaitingRoomConfig, now: Instant) -> Self {
        Self {
            queue: WaitQueue::from_base(RoomBase::new(config, now)),
            holds: Holds::new(),
            pumps: 0,
            unparked: false,
            uncollected: 0,
            next_uncollected_look: 0,
        }
    }

    #[inline]
    fn base(&self) -> &RoomBase {
        &self.queue.common.base
    }

    #[inline]
    fn base_mut(&mut self) -> &mut RoomBase {
        &mut self.queue.common.base
    }

    #[inline]
    fn waiters(&self) -> &Waiters<Waiter<C, W>> {
        &self.queue.common.waiters
    }

    #[inline]
    fn waiters_mut(&mut self) -> &mut Waiters<Waiter<C, W>> {
        &mut self.queue.common.waiters
    }

    /// Brings the room up to `now`, and returns `now` as a number.
    #[inline]
    fn advance_to(&mut self, now: Instant, wakes: &mut WakeList<W>) -> Nanos {
        let now = self.base_mut().clock.set_now(now);
        self.settle_holds(now);
        self.end_waits(now, wakes);
        now
    }

    /// Ends waits that are due, and promotes waiters.
    #[inline]
    fn end_waits(&mut self, now: Nanos, wakes: &mut WakeList<W>) {
        // The loop ends because each round unlinks a waiter.
        while let Some((id, why)) = self.queue.expire_next(now) {
            self.reject_unlinked(id.idx, why, wakes);
        }
    }

    /// Handles the arrival of a request. It gets a free slot, unless a better waiter could use the slot. Otherwise it
    /// waits if there is room for it, and is rejected if not.
    pub fn arrive(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) -> AdmitOutcome<C> {
        self.arrive_with(capacity, &mut Arrival::new(ticket, demand), now, wakes)
    }

    /// Handles an arrival like [`arrive`](Self::arrive). If the request gets a slot that is to be charged, also returns
    /// the name of its hold.
    pub fn arrive_holding(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) -> (AdmitOutcome<C>, Option<HoldId>) {
        let mut arrival = Arrival::new(ticket, demand);
        let outcome = self.arrive_with(capacity, &mut arrival, now, wakes);
        (outcome, arrival.hold)
    }

    /// Replaces the ticket and the demand of a waiter, which moves to the position of a request with this ticket that
    /// arrives as [requeued](Ticket::requeued). Its waker stays. O(log n). Returns `false` and changes nothing if it
    /// does not wait. Otherwise `demand` has the old demand afterwards, so that the caller can drop it without a lock.
    ///
    /// No bound on the number of waiters applies here, and [`wait`](Ticket::wait) is ignored. The wait is over at once
    /// if the new ticket says so. If a slot is free for the waiter in its new position, it is granted at once. If the
    /// capacity panics while it names the lane, the waiter stays in the old one.
    pub fn set_ticket(
        &mut self,
        capacity: &C,
        id: WaiterId,
        mut ticket: Ticket,
        demand: &mut C::Demand,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) -> bool {
        let now = self.advance_to(now, wakes);
        if !self.waiters().waits(id) {
            return false;
        }
        let lane = self.lane(capacity, demand);
        let lane = lane.unwrap_or_else(|_| self.queue.lane_of(id.idx));
        self.observe_lane(capacity, lane);
        self.expect_hold(lane, &mut ticket);
        let cost = ticket.cost;
        let limits = self.base().clock.limits(&ticket, now);
        self.queue.replace_ticket(id.idx, ticket, limits, lane, now);
        let waiter = self.waiters_mut().payload_mut(id.idx);
        std::mem::swap(&mut waiter.demand, demand);
        // Checked before the offer, because the wait may be over.
        self.end_waits(now, wakes);
        if self.queue.waits(id) {
            self.learn_cost(lane, cost);
        }
        self.offer_to(capacity, id, wakes);
        let (meta, waiter) = (self.waiters().meta(id.idx), self.waiters().payload(id.idx));
        if let State::Leased { lease, .. } = &waiter.state
            && self.base().counters.waiting > 0
        {
            ask::on_overtake(capacity, lease, Priority(meta.level));
        }
        true
    }

    /// Looks for a slot for a waiter, in the order of all waiters. This is [`lease_in_order`](Self::lease_in_order) for
    /// a request that is queued already, and it ends for the same reasons.
    fn offer_to(&mut self, capacity: &C, id: WaiterId, wakes: &mut WakeList<W>) {
        while self.queue.waits(id) && !self.waiters().meta(id.idx).is_parked {
            let (lease, pool) = match self.lease_for(capacity, id.idx) {
                Ok(leased) => leased,
                Err(LeaseError::Busy) => return,
                Err(LeaseError::Unservable(why)) => {
                    return self.reject_idx(id.idx, RejectReason::Unservable(why), wakes);
                }
            };
            let (scope, best) = self.best_for(pool, self.queue.lane_of(id.idx));
            // The best waiter is `None` if the capacity names a pool that does not serve the waiter's lane.
            if best.is_none_or(|best| best.idx == id.idx) {
                return self.grant(id.idx, (lease, pool), wakes);
            }
            if !self.pass_on(capacity, lease, scope, wakes) {
                return;
            }
        }
    }

    /// Grants a slot of `pool` that came back to the best waiter that it can serve. The room looks only at lanes that
    /// `pool` serves.
    pub fn on_release(
        &mut self,
        capacity: &C,
        pool: PoolId,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) {
        self.advance_to(now, wakes);
        self.observe(capacity, pool);
        let scope = match self.unparked {
            true => Scope::All,
            false => Scope::Pool(pool),
        };
        self.pump(capacity, scope, wakes);
    }

    /// Takes back a lease that went unused, and then acts as [`on_release`](Self::on_release).
    pub fn on_lease_returned(
        &mut self,
        capacity: &C,
        lease: C::Lease,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) {
        // The lease was counted as given, so it is counted as unclaimed here.
        self.base_mut().counters.stats.unclaimed += 1;
        match ask::release(capacity, lease) {
            Some(pool) => self.on_release(capacity, pool, now, wakes),
            // The capacity panicked, so the pool is unknown and all waiters are offered slots.
            None => self.on_capacity_grown(capacity, now, wakes),
        }
    }

    /// Grants slots to the best waiters, after the capacity may have got more slots.
    pub fn on_capacity_grown(&mut self, capacity: &C, now: Instant, wakes: &mut WakeList<W>) {
        self.advance_to(now, wakes);
        self.offer_all(capacity, wakes);
    }

    /// Offers all free slots to the best waiters.
    fn offer_all(&mut self, capacity: &C, wakes: &mut WakeList<W>) {
        self.observe_waiters(capacity);
        self.pump(capacity, Scope::All, wakes);
    }

    /// Moves every waiter to the lane that its demand has now, after the capacity's lanes, pools or partitions changed,
    /// and evicts waiters of partitions that have too many now. If the capacity panics over a waiter, the waiter stays
    /// in its old lane.
    pub fn on_capacity_changed(&mut self, capacity: &C, now: Instant, wakes: &mut WakeList<W>) {
        let now = self.advance_to(now, wakes);
        let relinks = self.ask_lanes(capacity);
        let above = self.queue.above_bounds();
        self.queue.rebuild(relinks, now);
        let mut evicted = Vec::new();
        // Only partitions evict here, because the bounds of the room and of tenants are unchanged.
        self.queue.evict_from_partitions(&above, &mut evicted);
        self.reject_all(evicted, wakes);
        self.observe_pools_in_service(capacity);
        self.offer_all(capacity, wakes);
        // Done last, so that a waiter that gets a slot here does not expire first.
        self.end_waits(now, wakes);
    }

    /// Returns all waiters in the order of arrival, with the lanes that the capacity names for them now.
    fn ask_lanes(&self, capacity: &C) -> Vec<Relink<C::Lane>> {
        // The capacity is asked about each lane only once.
        let mut known: HashMap<C::Lane, (PoolSet, Partition)> = HashMap::new();
        let mut ask = |idx| {
            let key = ask::lane(capacity, &self.waiters().payload(idx).demand).ok()?;
            let about = match known.get(&key) {
                Some(about) => about.clone(),
                None => ask::about_lane(capacity, &key).ok()?,
            };
            known.insert(key.clone(), about.clone());
            let (pools, partition) = about;
            Some(Relink {
                idx,
                key,
                pools,
                partition,
            })
        };
        let all = self.waiters().oldest_first().into_iter();
        all.filter_map(|idx| ask(idx).or_else(|| self.queue.relink(idx)))
            .collect()
    }

    /// Changes the configuration. Every waiter keeps its position in the order, and a level keeps its waiters by name.
    /// If the room is now too small, it rejects waiters in the order in which a full room evicts.
    pub fn reconfigure(
        &mut self,
        capacity: &C,
        config: WaitingRoomConfig,
        now: Instant,
        wakes: &mut WakeList<W>,
    ) {
        let now = self.advance_to(now, wakes);
        let relinks = self.ask_lanes(capacity);
        self.queue.set_config(config, relinks, now);
        self.unparked = false;
        // The order matters: expired waiters go before others are evicted, and evictions come before grants.
        self.end_waits(now, wakes);
        let mut evicted = Vec::new();
        self.queue.evict_excess(&mut evicted);
        self.reject_all(evicted, wakes);
        // The best waiter of the new order may fit a slot that the best of the old order could not use.
        self.offer_all(capacity, wakes);
    }

    /// Stops accepting requests. Every waiter and every later arrival is rejected as shutting down.
    pub fn close(&mut self, wakes: &mut WakeList<W>) {
        self.base_mut().counters.is_closed = true;
        // The latest waiter of the lowest level is rejected first.
        for idx in self.waiters().latest_first() {
            self.reject_idx(idx, RejectReason::ShuttingDown, wakes);
        }
    }

    /// Brings the room up to `now`. Rejects waiters that have expired, and promotes those that are due. Returns `true`
    /// if waiters may now use slots that were reserved for a level. The caller then has to call
    /// [`on_capacity_grown`](Self::on_capacity_grown).
    pub fn advance(&mut self, now: Instant, wakes: &mut WakeList<W>) -> bool {
        self.advance_to(now, wakes);
        self.base_mut().reserves.begin_offer()
    }

    /// Brings the room up to `now`, but leaves the offer of reserved slots to the next [`advance`](Self::advance).
    pub(crate) fn advance_waits(&mut self, now: Instant, wakes: &mut WakeList<W>) {
        self.advance_to(now, wakes);
    }

    /// Returns the instant at which to call [`advance`](Self::advance) next, if there is one.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let next = self.or_offer(self.queue.next_end());
        self.base().clock.epoch.instant(next)
    }

    /// Returns the instant at which to call [`advance`](Self::advance) at the latest for the sake of this waiter, or
    /// `NEVER` if no call is needed.
    #[inline]
    pub(crate) fn timeout_of(&self, id: WaiterId) -> Nanos {
        self.or_offer(self.waiters().timeout(id.idx))
    }

    /// Returns the earlier of `end` and the next time at which reserved slots become available to waiters, because one of
    /// them is promoted.
    #[inline]
    fn or_offer(&self, end: Nanos) -> Nanos {
        let base = self.base();
        if base.counters.waiting == 0 || base.reserves.is_empty() {
            return end;
        }
        match base.reserves.has_offer() {
            true => 0,
            false => end.min(self.queue.next_promotion()),
        }
    }

    /// Sets the waiter's waker, and returns the one that it replaces.
    ///
    /// # Errors
    ///
    /// Returns `waker` itself if the wait is over.
    pub fn set_waker(&mut self, id: WaiterId, waker: W) -> Result<Option<W>, W> {
        match &mut self.waiters_mut().payload_mut(id.idx).state {
            State::Waiting(old) => Ok(old.replace(waker)),
            _ => Err(waker),
        }
    }

    /// Returns the waiter's waker, if one is set and the waiter still waits.
    pub fn waker(&self, id: WaiterId) -> Option<&W> {
        match &self.waiters().payload(id.idx).state {
            State::Waiting(waker) => waker.as_ref(),
            _ => None,
        }
    }

    /// Takes the waiter's waker, if one is set and the waiter still waits.
    pub fn take_waker(&mut self, id: WaiterId) -> Option<W> {
        match &mut self.waiters_mut().payload_mut(id.idx).state {
            State::Waiting(waker) => waker.take(),
            _ => None,
        }
    }

    /// Takes the wakers of all waiters, so that each task looks again.
    pub fn take_wakers(&mut self, wakes: &mut WakeList<W>) {
        for waiter in self.waiters_mut().payloads_mut() {
            if let State::Waiting(waker) = &mut waiter.state {
                waker.take().into_iter().for_each(|waker| wakes.push(waker));
            }
        }
    }

    /// Reserves room for one request that will arrive. Returns `true` if there was room for it.
    pub fn reserve(&mut self) -> bool {
        self.base_mut().reserve()
    }

    /// Ends a reservation, because the request arrives now or never will.
    pub fn unreserve(&mut self) {
        // The reserved room is free before the request arrives, so that `arrive` finds it.
        self.base_mut().unreserve();
    }

    /// Returns `true` if one more request may wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.base().has_room()
    }

    /// Returns a level if the room is full. Every arrival of this level or a lower one that finds no slot is then
    /// rejected as full, whatever else its ticket says.
    pub(crate) fn full_from(&self) -> Option<u8> {
        let base = self.base();
        if !base.is_full() {
            return None;
        }
        match base.config.displace {
            // A waiter is displaced only by a level that is higher than its own.
            true => {
                let lowest = self.queue.lowest()?;
                Some(self.waiters().meta(lowest).level)
            }
            false => Some(0),
        }
    }

    /// Returns the number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.base().counters.waiting
    }

    /// Returns `true` if the room has no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.base().counters.waiting == 0
    }

    /// Returns `true` if the room has stopped accepting requests.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.base().counters.is_closed
    }

    /// Returns the instant of the room's creation, from which it measures time.
    #[must_use]
    pub fn epoch(&self) -> Instant {
        self.base().clock.epoch.0
    }

    /// Returns `true` if the waiter still waits, and `false` for an invalid id.
    #[must_use]
    pub fn waits(&self, id: WaiterId) -> bool {
        self.waiters().waits(id)
    }

    /// Returns the waiter that goes before all others.
    #[must_use]
    pub fn head(&self) -> Option<WaiterId> {
        self.queue.peek()
    }

    /// Returns the waiter's position among those that compete for the same slots, from 1. `None` if it does not wait.
    /// O(n log n).
    #[must_use]
    pub fn position(&self, id: WaiterId) -> Option<usize> {
        self.queue.position(id)
    }

    /// Returns the time until `ahead` waiters have left with a slot. `None` until the departure rate was measured.
    #[must_use]
    pub fn estimated_wait(&self, ahead: usize) -> Option<Duration> {
        time_for(ahead, self.departure_rate()?)
    }

    /// Returns the number of waiters that leave with a slot per second. `None` until the rate was measured.
    pub(crate) fn departure_rate(&self) -> Option<f64> {
        self.base().overload.total_per_second()
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &WaitingRoomConfig {
        &self.base().config
    }

    /// Returns the numbers of requests that were rejected, by reason, and of those that were cancelled.
    #[must_use]
    pub fn stats(&self) -> RoomStats {
        self.base().counters.stats
    }

    /// Returns the end of the wait of a request that holds a slot of `pool`, and the reason at that end, if it has one.
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

    /// Gives memory back, for a timer that has nothing else to do. Returns the instant at which to look again, or
    /// `None` if that can wait for the next waiter.
    pub(crate) fn trim_idle(&mut self, now: Instant) -> Option<Instant> {
        self.queue.trim_idle(now)
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
