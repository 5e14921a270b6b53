//! The wait queue, a bounded set of waiters that are ordered over lanes, tenants, priorities and deadlines.
//!
//! The queue knows waiters and leaves slots to others. A [`WaitingRoom`](super::WaitingRoom) puts it in front of a
//! capacity, and a `RequestQueue` puts it behind a lock. It keeps its waiters in one of [two orders](order). This file
//! has the methods that users call, and each module behind it does one job.

mod aging;
mod common;
mod contention;
pub(super) mod discipline;
#[cfg(feature = "batch")]
mod due;
mod estimates;
mod eviction;
mod lane_order;
pub(super) mod lanes;
mod memory;
mod offers;
mod order;
mod places;
mod rebuild;
mod tenant_slots;

use std::convert::Infallible;
use std::hash::{Hash, RandomState};
use std::time::Instant;

pub(super) use self::common::Common;
pub(super) use self::discipline::{Newcomer, UNIT};
use self::order::{Levels, Order};
pub(super) use self::rebuild::Relink;
use super::capacity::{Partition, PoolId, PoolSet};
use super::nanos::Nanos;
use super::room_base::RoomBase;
use super::waiters::{WaitLimits, WaiterId, WaiterMeta};
use super::{RejectReason, RoomStats, Ticket, WaitingRoomConfig};

/// The pool that serves all lanes of a queue without a capacity behind it.
const ONLY_POOL: PoolId = PoolId(0);

/// A bounded, ordered set of waiting items, over lanes that `L` names.
///
/// [`push`](Self::push) adds an item, or returns the reason why it may not wait. [`peek`](Self::peek) returns the item
/// that goes next, [`pop`](Self::pop) takes it to be served, and [`remove`](Self::remove) takes any item for any other
/// reason. [`skip`](Self::skip) hides an item so that the next one can be seen. Before each of these calls, call
/// [`advance`](Self::advance) until it returns `None`.
///
/// An item *waits* until it is popped or removed. If its wait ends in another way, it is *unlinked*. It then leaves the
/// order, but keeps its entry until it is [taken](Self::take).
///
/// ```
/// use std::time::Instant;
/// use tower_triage::admit::{Priority, Ticket, WaitQueue, WaitingRoomConfig};
///
/// let now = Instant::now();
/// let mut queue = WaitQueue::new(WaitingRoomConfig::default(), now);
/// queue.push(Ticket::new(Priority(1), now), (), now, |_| "second").unwrap();
/// queue.push(Ticket::new(Priority(0), now), (), now, |_| "first").unwrap();
///
/// let next = queue.peek().unwrap();
/// assert_eq!(queue.pop(next), Some("first"));
/// ```
///
/// # Panics
///
/// A [`WaiterId`] becomes invalid once its item is taken. Unless a method documents otherwise, calling it with an
/// invalid id may panic or act on another item.
pub struct WaitQueue<L, T> {
    pub(super) common: Common<T>,
    order: Order<L>,
    /// The hasher for the names of lanes. The service times identify a lane by this hash.
    lane_hasher: RandomState,
    /// The last value of [`Timeouts::not_before`](super::timeouts::Timeouts::not_before) that was converted, with its
    /// instant.
    #[cfg(feature = "batch")]
    not_before: (Nanos, Option<Instant>),
}

/// An item that was queued, and the item that it displaced, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// The id of the new item.
    pub id: WaiterId,
    /// The item of lower priority that lost its place. It is unlinked and has to be [taken](WaitQueue::take).
    pub displaced: Option<WaiterId>,
}

#[cfg(feature = "batch")]
impl WaiterId {
    /// Returns the waiter's index in the memory of its queue. The index is unique among the waiters that are there now.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.idx as usize
    }
}

/// An item that was skipped and has to be [restored](WaitQueue::restore).
#[derive(Debug)]
#[must_use = "a skipped item that is not restored is never served"]
pub struct Skipped(WaiterId);

impl Skipped {
    /// Returns the id of the skipped item.
    #[must_use]
    pub fn id(&self) -> WaiterId {
        self.0
    }
}

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Creates an empty queue.
    #[must_use]
    pub fn new(config: WaitingRoomConfig, now: Instant) -> Self {
        let mut base = RoomBase::new(config, now);
        base.has_slots = false;
        Self::from_base(base)
    }

    /// Adds an item that arrives at `now`. All lanes compete with each other, because they share one partition.
    ///
    /// # Errors
    ///
    /// Returns the reason why the item may not wait. In that case the items that wait are unchanged.
    #[inline]
    pub fn push(
        &mut self,
        ticket: Ticket,
        lane: L,
        now: Instant,
        item: impl FnOnce(WaiterId) -> T,
    ) -> Result<Pushed, RejectReason> {
        let now = self.nanos(now);
        self.push_at(ticket, lane, now, item)
    }

    /// Adds an item like [`push`](Self::push) for a caller that has already converted the instant.
    #[inline]
    pub(crate) fn push_at(
        &mut self,
        mut ticket: Ticket,
        lane: L,
        now: Nanos,
        item: impl FnOnce(WaiterId) -> T,
    ) -> Result<Pushed, RejectReason> {
        let limits = self.common.base.clock.limits(&ticket, now);
        self.trim_if_due(now);
        // The lane is opened even if the item is rejected below; empty lanes are closed later.
        let lane = self.lane_without_slots(lane);
        // Most rejected requests are rejected here, before anything is indexed for them.
        let refusal = match self.common.base.counters.is_closed {
            true => Some(RejectReason::ShuttingDown),
            false => self.common.base.refusal(&ticket, limits, now),
        };
        let place = match refusal {
            None => self.place_for(&ticket, lane, limits.arrival, now),
            Some(why) => Err(why),
        };
        let displaced = match place {
            Ok(displaced) => displaced,
            Err(why) => {
                self.count_rejected(&why);
                return Err(why);
            }
        };
        // The displaced waiter leaves first, because the item takes its place.
        if let Some(displaced) = displaced {
            self.unlink(displaced, false);
            self.count_rejected(&RejectReason::<()>::Displaced);
        }
        let id = self.insert(&mut ticket, limits, lane, (now, 0.0), item);
        let displaced = displaced.map(|idx| self.common.waiters.id(idx));
        Ok(Pushed { id, displaced })
    }

    /// Returns the lane with this key. One pool serves all lanes of this queue.
    #[inline]
    fn lane_without_slots(&mut self, key: L) -> u32 {
        let ask = |_: &L| Ok((PoolSet::one(ONLY_POOL), Partition::default()));
        let lane: Result<u32, Infallible> = self.lane(key, ask);
        let Ok(lane) = lane;
        lane
    }

    /// Adds a waiter to a lane even if the queue is full, and takes the tenant out of its ticket. `predicted` is the
    /// predicted wait of the waiter, in seconds.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        ticket: &mut Ticket,
        limits: WaitLimits,
        lane: u32,
        (now, predicted): (Nanos, f32),
        payload: impl FnOnce(WaiterId) -> T,
    ) -> WaiterId {
        let lane_hash = self.hash(lane);
        let Common { base, waiters, .. } = &mut self.common;
        let priority = base.config.levels.clamp(ticket.priority);
        // From here on nothing rejects the request, so its key counts as given.
        let key = base.clock.next_key(ticket, limits);
        let mut meta = WaiterMeta::new(key, priority, limits, ticket);
        (meta.predicted, meta.lane_hash) = (predicted, lane_hash);
        if base.has_slots {
            meta.set_entered(now);
        }
        let id = waiters.insert(meta, payload);
        self.link(id.idx, lane, None, now);
        id
    }

    /// Gives a waiter another ticket and another lane, and links it at the position that follows from them.
    pub(crate) fn replace_ticket(
        &mut self,
        idx: u32,
        ticket: Ticket,
        limits: WaitLimits,
        lane: u32,
        now: Nanos,
    ) {
        let common = &mut self.common;
        match &mut self.order {
            Order::Levels(_) => {
                common.unlink(idx);
                common.write_ticket(idx, ticket, limits, now);
                common.link(idx);
            }
            Order::Lanes(order) => order.replace_ticket(common, idx, (ticket, limits), lane, now),
        }
        self.common.waiters.meta_mut(idx).lane_hash = self.hash(lane);
    }

    /// Gives a waiting item another ticket and lane. The item moves to the position that it would have if it were
    /// pushed with this ticket as [requeued](Ticket::requeued). Returns `false` if the item does not wait. O(log n).
    /// The bounds of the queue and [`wait`](Ticket::wait) are ignored.
    pub fn set_ticket(&mut self, id: WaiterId, ticket: Ticket, lane: L, now: Instant) -> bool {
        if !self.common.waiters.waits(id) {
            return false;
        }
        let now = self.nanos(now);
        let limits = self.common.base.clock.limits(&ticket, now);
        let lane = self.lane_without_slots(lane);
        self.replace_ticket(id.idx, ticket, limits, lane, now);
        true
    }

    /// Returns the item that goes next, which is the head of the queue.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<WaiterId> {
        Some(self.common.waiters.id(self.head()?))
    }

    /// Takes an item to be served, or returns `None` if it does not wait. The [fair](super::Discipline::Fair)
    /// discipline charges the item to its tenant.
    pub fn pop(&mut self, id: WaiterId) -> Option<T> {
        if !self.common.waiters.waits(id) {
            return None;
        }
        Some(self.serve(id))
    }

    /// Takes an item to be served, like [`pop`](Self::pop). The caller has checked that the item waits.
    #[inline]
    pub(crate) fn serve(&mut self, id: WaiterId) -> T {
        self.unlink(id.idx, true);
        self.take(id)
    }

    /// Takes an item that is cancelled, or returns `None` if it does not wait.
    pub fn remove(&mut self, id: WaiterId) -> Option<T> {
        if !self.common.waiters.waits(id) {
            return None;
        }
        self.unlink(id.idx, false);
        self.common.base.counters.stats.cancelled += 1;
        Some(self.take(id))
    }

    /// Takes an item that is unlinked, which ends the validity of its id.
    #[inline]
    pub fn take(&mut self, id: WaiterId) -> T {
        let item = self.common.waiters.remove(id.idx);
        // The last item that leaves after a burst gives the memory back.
        self.trim_if_empty();
        item
    }

    /// Hides an item, so that [`peek`](Self::peek) returns the next one. Until it is restored, the caller may only skip
    /// or pop other items.
    pub fn skip(&mut self, id: WaiterId) -> Skipped {
        let Common {
            waiters, by_level, ..
        } = &mut self.common;
        match &mut self.order {
            Order::Levels(_) => by_level.remove(waiters, id.idx),
            Order::Lanes(order) => order.lanes.skip(waiters, id.idx),
        }
        Skipped(id)
    }

    /// Puts a skipped item back at its old position.
    pub fn restore(&mut self, Skipped(id): Skipped) {
        let Common {
            waiters, by_level, ..
        } = &mut self.common;
        match &mut self.order {
            Order::Levels(_) => by_level.push(waiters, id.idx),
            Order::Lanes(order) => order.lanes.restore(waiters, id.idx),
        }
    }

    /// Brings the queue up to `now` by one step, and returns an item that has expired with the reason. Call it again
    /// until it returns `None`.
    #[inline]
    pub fn advance(&mut self, now: Instant) -> Option<(WaiterId, RejectReason)> {
        self.advance_to(self.nanos(now))
    }

    /// Brings the queue up to `now` like [`advance`](Self::advance), for a caller that has already converted the
    /// instant.
    #[inline]
    pub(crate) fn advance_to(&mut self, now: Nanos) -> Option<(WaiterId, RejectReason)> {
        let expired = self.expire_next(now)?;
        self.count_rejected(&expired.1);
        Some(expired)
    }

    /// Unlinks the next waiter that has expired by `now`. If there is none, promotes the waiters that are due.
    #[inline]
    pub(super) fn expire_next<N>(&mut self, now: Nanos) -> Option<(WaiterId, RejectReason<N>)> {
        let may_promote =
            matches!(&self.order, Order::Lanes(order) if !order.promotions.is_empty());
        match may_promote || self.common.timeouts.may_be_due(now) {
            true => self.expire_or_promote(now),
            false => None,
        }
    }

    /// Unlinks the next waiter that has expired by `now`. If there is none, promotes the waiters that are due.
    #[cold]
    #[inline(never)]
    fn expire_or_promote<N>(&mut self, now: Nanos) -> Option<(WaiterId, RejectReason<N>)> {
        loop {
            // The loop ends because each round but the last puts a waiter off until later.
            while let Some(idx) = self.common.timeouts.due(&self.common.waiters, now) {
                if let Some(expired) = self.expire(idx, now) {
                    return Some(expired);
                }
            }
            // Promotion comes last, so that only waiters that go on waiting are promoted. In its new level, the end of a
            // wait may be due. The outer loop ends because each round but the last promotes a waiter.
            let has_promoted = match &mut self.order {
                Order::Lanes(order) if !order.promotions.is_empty() => {
                    order.promote(&mut self.common, now)
                }
                _ => false,
            };
            if !has_promoted {
                return None;
            }
        }
    }

    /// Unlinks a waiter whose wait is over, or puts it off until the next time at which its wait may end.
    #[cold]
    fn expire<N>(&mut self, idx: u32, now: Nanos) -> Option<(WaiterId, RejectReason<N>)> {
        let slots = self.common.base.overload.slots_of(self.pools_of(idx));
        let is_next = self.is_next_of_lane(idx);
        let Common {
            base,
            waiters,
            timeouts,
            ..
        } = &mut self.common;
        match base.wait_goes_on(waiters.meta_mut(idx), is_next, slots, now) {
            Ok(end) => {
                timeouts.extend(waiters, idx, end);
                None
            }
            Err(why) => {
                self.unlink(idx, false);
                Some((self.common.waiters.id(idx), why))
            }
        }
    }

    /// Returns the instant at which to call [`advance`](Self::advance) next, or `None` if all waits are without an end.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.common.base.clock.epoch.instant(self.next_end())
    }

    /// Returns the number of entries that fit into the allocated memory. All indices of waiters are below it.
    #[cfg(feature = "batch")]
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.common.waiters.capacity()
    }

    /// Returns the earliest end of a wait, or `NEVER` if all waits are without an end.
    #[inline]
    pub(super) fn next_end(&self) -> Nanos {
        self.common.timeouts.next(&self.common.waiters)
    }

    /// Stops accepting items. Items that wait already go on waiting.
    pub fn stop_accepting(&mut self) {
        self.common.base.counters.is_closed = true;
    }

    /// Stops accepting items and rejects all waiting ones as shutting down. They are unlinked and have to be
    /// [taken](Self::take).
    pub fn close(&mut self) -> Vec<WaiterId> {
        self.common.base.counters.is_closed = true;
        let all = self.common.waiters.latest_first().into_iter();
        all.map(|idx| {
            self.unlink(idx, false);
            self.count_rejected(&RejectReason::<()>::ShuttingDown);
            self.common.waiters.id(idx)
        })
        .collect()
    }

    /// Reserves a place for an item that will be pushed later. Returns `true` if a place was free.
    pub fn reserve(&mut self) -> bool {
        self.common.base.reserve()
    }

    /// Ends a reservation. Call it once for each [`reserve`](Self::reserve) that returned `true`.
    pub fn unreserve(&mut self) {
        self.common.base.unreserve();
    }

    /// Returns `true` if one more item may wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.common.base.has_room()
    }

    /// Returns the number of waiting items.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.common.base.counters.waiting
    }

    /// Returns `true` if the queue has no waiting items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.common.base.counters.waiting == 0
    }

    /// Returns `true` if the queue has stopped accepting items.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.common.base.counters.is_closed
    }

    /// Returns `true` if the item still waits, and `false` for an invalid id.
    #[must_use]
    pub fn waits(&self, id: WaiterId) -> bool {
        self.common.waiters.waits(id)
    }

    /// Returns the item with this id.
    #[must_use]
    pub fn get(&self, id: WaiterId) -> &T {
        self.common.waiters.payload(id.idx)
    }

    /// Returns a mutable reference to the item with this id.
    pub fn get_mut(&mut self, id: WaiterId) -> &mut T {
        self.common.waiters.payload_mut(id.idx)
    }

    /// Returns an item's position among the items that compete with it, from 1. `None` if it does not wait. O(n log n).
    #[must_use]
    pub fn position(&self, id: WaiterId) -> Option<usize> {
        if !self.common.waiters.waits(id) {
            return None;
        }
        let order = self.forecast(id.idx);
        let nth = match &self.order {
            // A parked waiter gets an estimate: it comes after all waiters in their lanes, and after the parked waiters
            // of its tenant that go before it.
            Order::Lanes(lanes) if self.common.waiters.meta(id.idx).is_parked => {
                Some(order.len() + lanes.parked_before(&self.common.waiters, id.idx))
            }
            _ => order.iter().position(|&idx| idx == id.idx),
        };
        nth.map(|nth| nth + 1)
    }

    /// Returns a waiter and all waiters that compete with it, in the order in which they would be taken.
    fn forecast(&self, idx: u32) -> Vec<u32> {
        match &self.order {
            Order::Levels(_) => self.common.all_by_level(),
            Order::Lanes(order) => {
                let lane = self.common.waiters.meta(idx).lane;
                order.lanes.forecast(&self.common.waiters, lane)
            }
        }
    }

    /// Returns the head and all items that compete with it, in the order in which they would be taken now. This takes
    /// O(n log n).
    #[must_use]
    pub fn in_order(&self) -> Vec<WaiterId> {
        let Some(head) = self.peek() else {
            return Vec::new();
        };
        // One pool serves all lanes that `push` opens, so all items compete.
        let order = self.forecast(head.idx).into_iter();
        order.map(|idx| self.common.waiters.id(idx)).collect()
    }

    /// Returns the arrival of the item that is first in the order of arrival. O(levels).
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let first = self.common.by_level.oldest(&self.common.waiters)?;
        let arrival = self.common.waiters.meta(first).limits.arrival;
        self.common.base.clock.epoch.instant(arrival)
    }

    /// Converts an instant to the nanoseconds of the queue's clock, which takes longer than most methods.
    #[inline]
    pub(crate) fn nanos(&self, now: Instant) -> Nanos {
        self.common.base.clock.epoch.nanos(now)
    }

    /// Counts an item that was rejected.
    pub(crate) fn count_rejected<N>(&mut self, why: &RejectReason<N>) {
        self.common.base.counters.stats.reject(why);
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &WaitingRoomConfig {
        &self.common.base.config
    }

    /// Returns the number of rejected items for each reason, and the number of cancelled items.
    #[must_use]
    pub fn stats(&self) -> RoomStats {
        self.common.base.counters.stats
    }
}

/// Methods for the waiting room and for the other files of this module.
impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Creates an empty queue with the configuration, clock and counters of `base`.
    pub(super) fn from_base(base: RoomBase) -> Self {
        let mut queue = Self {
            common: Common::new(base),
            order: Order::Levels(Levels::of(None)),
            lane_hasher: RandomState::new(),
            #[cfg(feature = "batch")]
            not_before: (super::nanos::NEVER, None),
        };
        queue.order = queue.order_for(&[]);
        queue
    }

    /// Returns the waiter that is evicted first.
    pub(super) fn lowest(&self) -> Option<u32> {
        let eviction = match &self.order {
            Order::Lanes(order) => order.eviction.as_ref(),
            Order::Levels(_) => None,
        };
        match eviction {
            Some(eviction) => eviction.last(),
            None => self.common.by_level.lowest_and_latest(),
        }
    }
}
