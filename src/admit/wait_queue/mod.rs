//! The wait queue: a bounded set of waiters, ordered over lanes, tenants, priorities and deadlines.
//!
//! It knows nothing of slots. A [`WaitingRoom`](super::WaitingRoom) is a wait queue in front of a capacity; a
//! `RequestQueue` is one behind a lock.
//!
//! The order is one of [two](order): `Levels`, for one lane that is first come, first served, and `Lanes`, for everything
//! else. The [configuration and the lanes](rebuild) choose.
//!
//! This file has what a user calls. Behind it: [`places`] says whether a request may wait, [`eviction`] which waiter loses
//! its place; [`lane_order`] adds and removes waiters where there are lanes; [`tenant_slots`] parks those of tenants at
//! their limit; [`aging`] promotes them; [`rebuild`] reconfigures; [`memory`] gives memory back; `due` asks whether there is
//! anything to bring up to date. [`offers`] is what a scheduler asks, [`estimates`] what a prediction asks. Among lanes the
//! order is that of [`lanes`], and within one level of one lane that of a [`discipline`].

mod aging;
mod common;
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
mod partitions;
mod places;
mod rebuild;
mod tenant_slots;

use std::convert::Infallible;
use std::hash::{Hash, RandomState};
use std::time::Instant;

pub(super) use self::common::Common;
pub(super) use self::discipline::Newcomer;
use self::order::{Levels, Order};
pub(super) use self::rebuild::Relink;
use super::age_order::AgeOrder;
use super::capacity::{Partition, PoolId, PoolSet};
use super::nanos::{NEVER, Nanos};
use super::room_base::RoomBase;
use super::waiters::{WaitLimits, WaiterId, WaiterMeta};
use super::{RejectReason, RoomStats, Ticket, WaitingRoomConfig};

/// The pool of all lanes of a queue that is in front of no capacity.
const ONLY_POOL: PoolId = PoolId(0);

/// A bounded, ordered set of waiting items, over lanes that `L` names.
///
/// # How to use it
///
/// - [`push`](Self::push) adds an item, or says why it may not wait.
/// - [`peek`](Self::peek) names the item that goes next, [`pop`](Self::pop) takes it to be served, and
///   [`remove`](Self::remove) takes any item for any other reason. With [`skip`](Self::skip) the next one can be seen, and
///   [`restore`](Self::restore) brings the skipped one back.
/// - Before each of these, bring the queue up to date: call [`advance`](Self::advance) until it returns `None`. It returns
///   the items that have expired, one at a time, and then promotes those that are due.
///
/// # An item's states
///
/// An item *waits* until it is popped or removed. If its wait ends otherwise, it is *unlinked*: it keeps its entry until it
/// is [taken](Self::take).
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
/// A [`WaiterId`] is invalid once its item was taken. With an invalid id a method may panic or act on another item, unless
/// it says otherwise.
pub struct WaitQueue<L, T> {
    pub(super) common: Common<T>,
    order: Order<L>,
    /// Hashes the names of lanes, by which these are known in the service times.
    lane_hasher: RandomState,
    /// The value of [`Timeouts::not_before`](super::timeouts::Timeouts::not_before) that was last converted, and its instant.
    #[cfg(feature = "batch")]
    not_before: (Nanos, Option<Instant>),
}

/// An item that was queued, and the one that it displaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// The item.
    pub id: WaiterId,
    /// An item of lower priority that lost its place. It is unlinked, to be [taken](WaitQueue::take).
    pub displaced: Option<WaiterId>,
}

#[cfg(feature = "batch")]
impl WaiterId {
    /// Where the waiter is in the memory of its queue. No other that is there has the same.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.idx as usize
    }
}

/// An item that was skipped, to be [restored](WaitQueue::restore).
#[derive(Debug)]
#[must_use = "a skipped item that is not restored is never served"]
pub struct Skipped(WaiterId);

impl Skipped {
    /// The item.
    #[must_use]
    pub fn id(&self) -> WaiterId {
        self.0
    }
}

impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// An empty queue.
    #[must_use]
    pub fn new(config: WaitingRoomConfig, now: Instant) -> Self {
        let mut base = RoomBase::new(config, now);
        base.has_slots = false;
        Self::from_base(base)
    }

    /// Adds an item that arrives at `now`. All lanes compete with each other, in one partition.
    ///
    /// # Errors
    ///
    /// The reason why it may not wait. Then no item has changed.
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

    /// As [`push`](Self::push), where the caller has converted the instant already.
    #[inline]
    pub(crate) fn push_at(
        &mut self,
        ticket: Ticket,
        lane: L,
        now: Nanos,
        item: impl FnOnce(WaiterId) -> T,
    ) -> Result<Pushed, RejectReason> {
        let limits = self.common.base.clock.limits(&ticket, now);
        self.trim_if_due(now);
        // Opened even if the item is rejected below; empty lanes are closed later.
        let lane = self.lane_without_slots(lane);
        // Before anything is indexed: most requests that are rejected are rejected here.
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
                self.common.base.counters.stats.reject(&why);
                return Err(why);
            }
        };
        // It frees the place that the item takes.
        if let Some(displaced) = displaced {
            self.unlink(displaced, false);
            self.common
                .base
                .counters
                .stats
                .reject(&RejectReason::<()>::Displaced);
        }
        let id = self.insert(ticket, limits, lane, (now, 0.0), item);
        let displaced = displaced.map(|idx| self.common.waiters.id(idx));
        Ok(Pushed { id, displaced })
    }

    /// Returns the lane with this key. All are served by the same pool.
    #[inline]
    fn lane_without_slots(&mut self, key: L) -> u32 {
        let ask = |_: &L| Ok((PoolSet::one(ONLY_POOL), Partition::default()));
        let lane: Result<u32, Infallible> = self.lane(key, ask);
        let Ok(lane) = lane;
        lane
    }

    /// Adds a waiter to a lane, whether or not there is a place for it. `predicted`: its wait as it was predicted, in
    /// seconds.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        ticket: Ticket,
        limits: WaitLimits,
        lane: u32,
        (now, predicted): (Nanos, f32),
        payload: impl FnOnce(WaiterId) -> T,
    ) -> WaiterId {
        let lane_hash = self.hash(lane);
        let Common { base, waiters, .. } = &mut self.common;
        let priority = base.config.levels.clamp(ticket.priority);
        // The key counts as given from here on: nothing rejects the request any more.
        let key = base.clock.next_key(&ticket, limits);
        let mut meta = WaiterMeta::new(key, priority, limits, ticket);
        (meta.predicted, meta.lane_hash) = (predicted, lane_hash);
        if base.has_slots {
            meta.set_entered(now);
        }
        let id = waiters.insert(meta, payload);
        self.link(id.idx, lane, None, now);
        id
    }

    /// Gives a waiter another ticket and another lane, and links it where these lead.
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
                common.unlink(idx, common.waiters.meta(idx).level);
                common.write_ticket(idx, ticket, limits, now);
                common.link(idx);
            }
            Order::Lanes(order) => order.replace_ticket(common, idx, (ticket, limits), lane, now),
        }
        self.common.waiters.meta_mut(idx).lane_hash = self.hash(lane);
    }

    /// Gives an item that waits another ticket and lane. It moves to the place of an item with this ticket that is pushed as
    /// [requeued](Ticket::requeued): the ticket's arrival decides, `now` without one, and of equal arrivals the order of the
    /// pushes. O(log n). Returns `false` if it does not wait.
    ///
    /// No bound refuses it: it takes a place even if none is free. [`wait`](Ticket::wait) is not looked at. If its wait is over by the new ticket, the next
    /// [`advance`](Self::advance) returns it.
    ///
    /// ```
    /// use std::time::Instant;
    /// use tower_triage::admit::{Priority, Ticket, WaitQueue, WaitingRoomConfig};
    ///
    /// let now = Instant::now();
    /// let mut queue = WaitQueue::new(WaitingRoomConfig::default(), now);
    /// let ticket = |level| Ticket::new(Priority(level), now);
    /// let first = queue.push(ticket(0), (), now, |_| "first").unwrap().id;
    /// let second = queue.push(ticket(1), (), now, |_| "second").unwrap().id;
    ///
    /// assert!(queue.set_ticket(first, ticket(1).patient(), (), now));
    /// assert!(queue.set_ticket(second, ticket(0), (), now));
    /// assert_eq!(queue.peek(), Some(second));
    /// ```
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

    /// The item that goes next, which is the head of the queue.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<WaiterId> {
        Some(self.common.waiters.id(self.head()?))
    }

    /// Takes an item to be served. With the [fair](super::Discipline::Fair) discipline, it is charged to its tenant. `None`
    /// if it does not wait.
    pub fn pop(&mut self, id: WaiterId) -> Option<T> {
        if !self.common.waiters.waits(id) {
            return None;
        }
        Some(self.serve(id))
    }

    /// As [`pop`](Self::pop), where the item waits.
    #[inline]
    pub(crate) fn serve(&mut self, id: WaiterId) -> T {
        self.unlink(id.idx, true);
        self.take(id)
    }

    /// Takes an item that is cancelled. `None` if it does not wait.
    pub fn remove(&mut self, id: WaiterId) -> Option<T> {
        if !self.common.waiters.waits(id) {
            return None;
        }
        self.unlink(id.idx, false);
        self.common.base.counters.stats.cancelled += 1;
        Some(self.take(id))
    }

    /// Takes an item that is unlinked.
    #[inline]
    pub fn take(&mut self, id: WaiterId) -> T {
        let item = self.common.waiters.remove(id.idx);
        // After a burst, the last item out gives the memory back.
        self.trim_if_empty();
        item
    }

    /// Hides an item, so that [`peek`](Self::peek) names the next one. It still waits, and keeps its place in the order.
    /// Until it is restored, other items may be skipped or popped, and nothing else be done.
    pub fn skip(&mut self, id: WaiterId) -> Skipped {
        let Common {
            waiters, by_level, ..
        } = &mut self.common;
        match &mut self.order {
            Order::Levels(_) => {
                let level = waiters.meta(id.idx).level;
                by_level.remove(waiters, id.idx, level);
            }
            Order::Lanes(order) => order.lanes.skip(waiters, id.idx),
        }
        Skipped(id)
    }

    /// Puts a skipped item back where it was.
    pub fn restore(&mut self, Skipped(id): Skipped) {
        let Common {
            waiters, by_level, ..
        } = &mut self.common;
        match &mut self.order {
            Order::Levels(_) => by_level.push(waiters, id.idx),
            Order::Lanes(order) => order.lanes.restore(waiters, id.idx),
        }
    }

    /// Brings the queue up to `now`, one step at a time: returns an item that has expired, and the reason. To be called
    /// again until it returns `None`.
    #[inline]
    pub fn advance(&mut self, now: Instant) -> Option<(WaiterId, RejectReason)> {
        self.advance_to(self.nanos(now))
    }

    /// As [`advance`](Self::advance), where the caller has converted the instant already.
    #[inline]
    pub(crate) fn advance_to(&mut self, now: Nanos) -> Option<(WaiterId, RejectReason)> {
        let expired = self.expire_next(now)?;
        self.common.base.counters.stats.reject(&expired.1);
        Some(expired)
    }

    /// Unlinks the next waiter that has expired by `now`. If there is none, promotes the waiters that are due.
    #[inline]
    pub(super) fn expire_next<N>(&mut self, now: Nanos) -> Option<(WaiterId, RejectReason<N>)> {
        // Ends because each round but the last puts a waiter off until later.
        while let Some(idx) = self.common.timeouts.due(&self.common.waiters, now) {
            if let Some(expired) = self.expire(idx, now) {
                return Some(expired);
            }
        }
        // Last: no expired waiter is promoted.
        if let Order::Lanes(order) = &mut self.order
            && !order.promotions.is_empty()
        {
            order.promote(&mut self.common, now);
        }
        None
    }

    /// Unlinks a waiter whose wait is over, or says when it may be.
    #[cold]
    fn expire<N>(&mut self, idx: u32, now: Nanos) -> Option<(WaiterId, RejectReason<N>)> {
        let slots = self
            .common
            .base
            .admission
            .overload
            .slots_of(self.pools_of(idx));
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

    /// When to call [`advance`](Self::advance) next. `None` if no wait ends.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.common.base.clock.epoch.instant(self.next_end())
    }

    /// How many entries there is memory for. All indices of waiters are below.
    #[cfg(feature = "batch")]
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.common.waiters.capacity()
    }

    /// The earliest end of a wait; `NEVER` if none ends.
    #[inline]
    pub(super) fn next_end(&self) -> Nanos {
        self.common.timeouts.next(&self.common.waiters)
    }

    /// Stops accepting. Items that wait go on waiting.
    pub fn stop_accepting(&mut self) {
        self.common.base.counters.is_closed = true;
    }

    /// Stops accepting, and rejects all items as shutting down. They are unlinked, to be [taken](Self::take).
    pub fn close(&mut self) -> Vec<WaiterId> {
        self.common.base.counters.is_closed = true;
        let all = self.common.waiters.latest_first().into_iter();
        all.map(|idx| {
            self.unlink(idx, false);
            self.common
                .base
                .counters
                .stats
                .reject(&RejectReason::<()>::ShuttingDown);
            self.common.waiters.id(idx)
        })
        .collect()
    }

    /// Reserves a place for an item that will be pushed, if one is free.
    pub fn reserve(&mut self) -> bool {
        self.common.base.reserve()
    }

    /// Ends a reservation, once for each [`reserve`](Self::reserve) that was `true`.
    pub fn unreserve(&mut self) {
        self.common.base.counters.reserved -= 1;
    }

    /// Whether one more item may wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.common.base.has_room()
    }

    /// How many items wait.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.common.base.counters.waiting
    }

    /// Whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.common.base.counters.waiting == 0
    }

    /// Whether the queue has stopped accepting.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.common.base.counters.is_closed
    }

    /// Whether [`advance`](Self::advance) will ever have something to do for the present items.
    #[must_use]
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.next_end() < NEVER || self.next_promotion() < NEVER
    }

    /// Whether the item still waits. An invalid id does not.
    #[must_use]
    pub fn waits(&self, id: WaiterId) -> bool {
        self.common.waiters.waits(id)
    }

    /// The item with this id.
    #[must_use]
    pub fn get(&self, id: WaiterId) -> &T {
        self.common.waiters.payload(id.idx)
    }

    /// The item with this id, to be changed.
    pub fn get_mut(&mut self, id: WaiterId) -> &mut T {
        self.common.waiters.payload_mut(id.idx)
    }

    /// An item's position among those that compete with it, in the order in which they would be taken now: 1 is next.
    /// `None` if it does not wait. O(n log n).
    #[must_use]
    pub fn position(&self, id: WaiterId) -> Option<usize> {
        if !self.common.waiters.waits(id) {
            return None;
        }
        let order = self.forecast(id.idx);
        let nth = match &self.order {
            // About: behind all that stand, and those of its tenant before it.
            Order::Lanes(lanes) if self.common.waiters.meta(id.idx).is_parked => {
                Some(order.len() + lanes.parked_before(&self.common.waiters, id.idx))
            }
            _ => order.iter().position(|&idx| idx == id.idx),
        };
        nth.map(|nth| nth + 1)
    }

    /// Returns a waiter and all that compete with it, in the order in which they would be taken.
    fn forecast(&self, idx: u32) -> Vec<u32> {
        match &self.order {
            Order::Levels(_) => self.common.all_by_level(),
            Order::Lanes(order) => {
                let lane = self.common.waiters.meta(idx).lane;
                order.lanes.forecast(&self.common.waiters, lane)
            }
        }
    }

    /// The head and all items that compete with it, in the order in which they would be taken now. O(n log n).
    #[must_use]
    pub fn in_order(&self) -> Vec<WaiterId> {
        let Some(head) = self.peek() else {
            return Vec::new();
        };
        // All lanes of a `push` are served by one pool, so all items compete.
        let order = self.forecast(head.idx).into_iter();
        order.map(|idx| self.common.waiters.id(idx)).collect()
    }

    /// The arrival of the item that is first in the order of arrival: those queued before others are before them, requeued
    /// ones aside. O(levels).
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let first = self.common.by_level.oldest(&self.common.waiters)?;
        self.common
            .base
            .clock
            .epoch
            .instant(self.common.waiters.meta(first).limits.arrival)
    }

    /// The number of an instant, for several methods at one time: the conversion takes longer than most of them.
    #[inline]
    pub(crate) fn nanos(&self, now: Instant) -> Nanos {
        self.common.base.clock.epoch.nanos(now)
    }

    /// Counts an item that was rejected before it was pushed.
    #[cfg(feature = "batch")]
    pub(crate) fn count_rejected<N>(&mut self, why: &RejectReason<N>) {
        self.common.base.counters.stats.reject(why);
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &WaitingRoomConfig {
        &self.common.base.config
    }

    /// How many items were rejected, by reason, and how many were cancelled.
    #[must_use]
    pub fn stats(&self) -> RoomStats {
        self.common.base.counters.stats
    }
}

/// For the waiting room, and for the files of this module.
impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// Returns an empty queue with this configuration, clock and counters.
    pub(super) fn from_base(base: RoomBase) -> Self {
        let mut queue = Self {
            common: Common::new(base),
            order: Order::Levels(Levels::of(None)),
            lane_hasher: RandomState::new(),
            #[cfg(feature = "batch")]
            not_before: (NEVER, None),
        };
        queue.order = queue.order_for(&[]);
        queue
    }

    /// Returns the waiter that is evicted first.
    pub(super) fn lowest(&self) -> Option<u32> {
        match &self.order {
            Order::Lanes(order) if let Some(eviction) = &order.eviction => eviction.last(),
            _ => self.common.by_level.lowest_and_latest(),
        }
    }

    /// Sets the order of equals, in all lanes.
    pub(super) fn update_age_order(&mut self) {
        let Common {
            base,
            waiters,
            by_level,
            ..
        } = &self.common;
        let first = by_level.first_silent(waiters).map(|idx| {
            // A parked waiter is in no lane.
            let pools = match waiters.meta(idx).is_parked {
                true => &[],
                false => self.pools_of(idx),
            };
            (idx, pools.first().copied().unwrap_or(ONLY_POOL))
        });
        let stands = base.config.lifo_when_standing
            && first.is_some_and(|(first, pool)| base.is_standing(waiters.meta(first), pool));
        self.common.base.age_order = match stands {
            true => AgeOrder::NewestFirst,
            false => AgeOrder::OldestFirst,
        };
        if let Order::Lanes(order) = &mut self.order {
            let Common { base, waiters, .. } = &self.common;
            order.lanes.set_age_order(waiters, base.age_order);
        }
    }
}

impl<L, T> std::fmt::Debug for WaitQueue<L, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitQueue")
            .field("config", &self.common.base.config)
            .field("waiting", &self.common.base.counters.waiting)
            .field("stats", &self.common.base.counters.stats)
            .finish_non_exhaustive()
    }
}
