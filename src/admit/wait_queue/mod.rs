//! The wait queue: a bounded set of waiters, ordered over lanes, tenants, priorities and deadlines.
//!
//! It knows nothing of slots. The [full room](super::full_room::FullRoom) is a wait queue in front of a capacity; a
//! `RequestQueue` is one behind a lock.
//!
//! This file has what a user calls. Behind it: [`places`] says whether a request may wait, [`eviction`] which waiter loses
//! its place; [`links`] adds and removes waiters; [`tenant_slots`] parks those of tenants at their limit; [`aging`] promotes them; [`rebuild`] reconfigures;
//! [`memory`] gives memory back; `due` asks whether there is anything to bring up to date. The order itself is that of
//! [`lanes`], and within one level of one lane that of a [`discipline`]; in the usual configuration of a queue without slots
//! it needs [no lanes](plain).

mod aging;
pub(super) mod discipline;
#[cfg(feature = "batch")]
mod due;
mod eviction;
pub(super) mod lanes;
mod links;
mod memory;
mod partitions;
mod places;
mod plain;
mod rebuild;
mod tenant_slots;

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Instant;

use self::aging::Promotion;
pub(super) use self::discipline::Newcomer;
use self::eviction::EvictionOrder;
use self::lanes::{Lanes, NO_PUMP, Scope};
use self::partitions::Partitions;
pub(super) use self::rebuild::{Relink, rename_levels};
use self::tenant_slots::TenantSlots;
use super::by_level::ByLevel;
use super::capacity::{Partition, PoolId, PoolSet};
use super::nanos::{NEVER, Nanos};
use super::ordered_queue::List;
use super::room_base::RoomBase;
use super::timeouts::Timeouts;
use super::waiters::{NONE, WaiterId, Waiters};
use super::{Account, RejectReason, RoomStats, Tenant, Ticket, WaitingRoomConfig};

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
    base: RoomBase,
    waiters: Waiters<T>,
    lanes: Lanes<L>,
    by_level: ByLevel,
    timeouts: Timeouts,
    /// Whether `by_level` is the order of all waiters, and none is linked in its lane.
    is_plain: bool,
    /// What [`Timeouts::not_before`] was when it was last converted, and its instant.
    #[cfg(feature = "batch")]
    not_before: (Nanos, Option<Instant>),
    /// The waiters that will be promoted, by when.
    promotions: BTreeSet<Promotion>,
    partitions: Partitions,
    /// The order in which waiters lose their places where flows share these; elsewhere it is that of `by_level`.
    eviction: Option<Box<EvictionOrder>>,
    /// How many requests of each tenant wait, if that is bounded; else empty.
    tenants: HashMap<Tenant, usize>,
    /// Where tenants have a limit.
    tenant_slots: Option<Box<TenantSlots>>,
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
        let mut queue = Self::from_base(base);
        queue.is_plain = queue.needs_no_lane();
        queue
    }

    /// An empty queue with these lanes, which are empty or to be rebuilt.
    fn empty(base: RoomBase, lanes: Lanes<L>) -> Self {
        let levels = base.config.levels.count();
        Self {
            waiters: Waiters::new(base.bounds()),
            lanes,
            by_level: ByLevel::new(List::Level, levels),
            timeouts: Timeouts::new(),
            is_plain: false,
            #[cfg(feature = "batch")]
            not_before: (NEVER, None),
            promotions: BTreeSet::new(),
            partitions: Partitions::default(),
            eviction: EvictionOrder::of_room(&base.config),
            tenants: HashMap::new(),
            tenant_slots: None,
            base,
        }
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
        let limits = self.base.limits(&ticket, now);
        self.trim_if_due(now);
        // Opened even if the item is rejected below; empty lanes are closed later.
        let lane = self.lane(lane, |_| (PoolSet::one(ONLY_POOL), Partition::default()));
        // Before anything is indexed: most requests that are rejected are rejected here.
        let refusal = match self.base.is_closed {
            true => Some(RejectReason::ShuttingDown),
            false => self.base.refusal(&ticket, limits, now),
        };
        let place = match refusal {
            None => self.place_for(&ticket, lane, limits.arrival, now),
            Some(why) => Err(why),
        };
        let displaced = match place {
            Ok(displaced) => displaced,
            Err(why) => {
                self.base.stats.reject(&why);
                return Err(why);
            }
        };
        // It frees the place that the item takes.
        if let Some(displaced) = displaced {
            self.unlink(displaced, false);
            self.base.stats.reject(&RejectReason::<()>::Displaced);
        }
        let id = self.insert(ticket, limits, lane, now, item);
        let displaced = displaced.map(|idx| self.waiters.id(idx));
        Ok(Pushed { id, displaced })
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
        if !self.waiters.waits(id) {
            return false;
        }
        let now = self.nanos(now);
        let limits = self.base.limits(&ticket, now);
        let lane = self.lane(lane, |_| (PoolSet::one(ONLY_POOL), Partition::default()));
        self.replace_ticket(id.idx, ticket, limits, lane, now);
        true
    }

    /// The item that goes next, which is the head of the queue.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<WaiterId> {
        let head = match self.is_plain {
            true => self.by_level.next(&self.waiters, self.base.age_order)?,
            // There are no slots, so no group is busy.
            false => self.lanes.best(&self.waiters, Scope::All, NO_PUMP)?.idx,
        };
        Some(self.waiters.id(head))
    }

    /// Takes an item to be served. With the [fair](super::Discipline::Fair) discipline, it is charged to its tenant. `None`
    /// if it does not wait.
    pub fn pop(&mut self, id: WaiterId) -> Option<T> {
        if !self.waiters.waits(id) {
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
        if !self.waiters.waits(id) {
            return None;
        }
        self.unlink(id.idx, false);
        self.base.stats.cancelled += 1;
        Some(self.take(id))
    }

    /// Takes an item that is unlinked.
    #[inline]
    pub fn take(&mut self, id: WaiterId) -> T {
        let item = self.waiters.remove(id.idx);
        // After a burst, the last item out gives the memory back.
        self.trim_if_empty();
        item
    }

    /// Hides an item, so that [`peek`](Self::peek) names the next one. It still waits, and keeps its place in the order.
    /// Until it is restored, other items may be skipped or popped, and nothing else be done.
    pub fn skip(&mut self, id: WaiterId) -> Skipped {
        match self.is_plain {
            true => self.skip_plain(id.idx),
            false => self.lanes.skip(&mut self.waiters, id.idx),
        }
        Skipped(id)
    }

    /// Puts a skipped item back where it was.
    pub fn restore(&mut self, Skipped(id): Skipped) {
        match self.is_plain {
            true => self.restore_plain(id.idx),
            false => self.lanes.restore(&mut self.waiters, id.idx),
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
        self.base.stats.reject(&expired.1);
        Some(expired)
    }

    /// Unlinks the next waiter that has expired by `now`. If there is none, promotes the waiters that are due.
    #[inline]
    pub(super) fn expire_next<N>(&mut self, now: Nanos) -> Option<(WaiterId, RejectReason<N>)> {
        // Ends because each round but the last puts a waiter off until later.
        while let Some(idx) = self.timeouts.due(&self.waiters, now) {
            if let Some(expired) = self.expire(idx, now) {
                return Some(expired);
            }
        }
        // Last: no expired waiter is promoted.
        if !self.promotions.is_empty() {
            self.promote(now);
        }
        None
    }

    /// Unlinks a waiter whose wait is over, or says when it may be.
    #[cold]
    fn expire<N>(&mut self, idx: u32, now: Nanos) -> Option<(WaiterId, RejectReason<N>)> {
        let meta = self.waiters.meta(idx);
        let slots = self.base.overload.slots_of(self.lanes.pools(meta.lane));
        let is_next = match meta.is_parked {
            true => self.is_next_of_tenant(idx),
            false => self.lanes.head(meta.lane) == Some(idx),
        };
        let meta = self.waiters.meta_mut(idx);
        match self.base.wait_goes_on(meta, is_next, slots, now) {
            Ok(end) => {
                self.timeouts.extend(&mut self.waiters, idx, end);
                None
            }
            Err(why) => {
                self.unlink(idx, false);
                Some((self.waiters.id(idx), why))
            }
        }
    }

    /// When to call [`advance`](Self::advance) next. `None` if no wait ends.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.base.epoch.instant(self.next_end())
    }

    /// How many entries there is memory for. All indices of waiters are below.
    #[cfg(feature = "batch")]
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.waiters.capacity()
    }

    /// The earliest end of a wait; `NEVER` if none ends.
    #[inline]
    pub(super) fn next_end(&self) -> Nanos {
        self.timeouts.next(&self.waiters)
    }

    /// Stops accepting. Items that wait go on waiting.
    pub fn stop_accepting(&mut self) {
        self.base.is_closed = true;
    }

    /// Stops accepting, and rejects all items as shutting down. They are unlinked, to be [taken](Self::take).
    pub fn close(&mut self) -> Vec<WaiterId> {
        self.base.is_closed = true;
        let all = self.waiters.latest_first().into_iter();
        all.map(|idx| {
            self.unlink(idx, false);
            self.base.stats.reject(&RejectReason::<()>::ShuttingDown);
            self.waiters.id(idx)
        })
        .collect()
    }

    /// Reserves a place for an item that will be pushed, if one is free.
    pub fn reserve(&mut self) -> bool {
        self.base.reserve()
    }

    /// Ends a reservation, once for each [`reserve`](Self::reserve) that was `true`.
    pub fn unreserve(&mut self) {
        self.base.reserved -= 1;
    }

    /// Whether one more item may wait.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.base.has_room()
    }

    /// How many items wait.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.base.waiting
    }

    /// Whether no item waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.base.waiting == 0
    }

    /// Whether the queue has stopped accepting.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.base.is_closed
    }

    /// Whether [`advance`](Self::advance) will ever have something to do for the present items.
    #[must_use]
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.next_end() < NEVER || !self.promotions.is_empty()
    }

    /// Whether the item still waits. An invalid id does not.
    #[must_use]
    pub fn waits(&self, id: WaiterId) -> bool {
        self.waiters.waits(id)
    }

    /// The item with this id.
    #[must_use]
    pub fn get(&self, id: WaiterId) -> &T {
        self.waiters.payload(id.idx)
    }

    /// The item with this id, to be changed.
    pub fn get_mut(&mut self, id: WaiterId) -> &mut T {
        self.waiters.payload_mut(id.idx)
    }

    /// An item's position among those that compete with it, in the order in which they would be taken now: 1 is next.
    /// `None` if it does not wait. O(n log n).
    #[must_use]
    pub fn position(&self, id: WaiterId) -> Option<usize> {
        if !self.waiters.waits(id) {
            return None;
        }
        let order = self.forecast(id.idx);
        let nth = match self.waiters.meta(id.idx).is_parked {
            // About: behind all that stand, and those of its tenant before it.
            true => Some(order.len() + self.parked_before(id.idx)),
            false => order.iter().position(|&idx| idx == id.idx),
        };
        nth.map(|nth| nth + 1)
    }

    /// The head and all items that compete with it, in the order in which they would be taken now. O(n log n).
    #[must_use]
    pub fn in_order(&self) -> Vec<WaiterId> {
        let Some(head) = self.peek() else {
            return Vec::new();
        };
        // All lanes of a `push` are served by one pool, so all items compete.
        let order = self.forecast(head.idx).into_iter();
        order.map(|idx| self.waiters.id(idx)).collect()
    }

    /// The arrival of the item that is first in the order of arrival: those queued before others are before them, requeued
    /// ones aside. O(levels).
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let first = self.by_level.oldest(&self.waiters)?;
        self.base
            .epoch
            .instant(self.waiters.meta(first).limits.arrival)
    }

    /// The number of an instant, for several methods at one time: the conversion takes longer than most of them.
    #[inline]
    pub(crate) fn nanos(&self, now: Instant) -> Nanos {
        self.base.epoch.nanos(now)
    }

    /// Counts an item that was rejected before it was pushed.
    #[cfg(feature = "batch")]
    pub(crate) fn count_rejected<N>(&mut self, why: &RejectReason<N>) {
        self.base.stats.reject(why);
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &WaitingRoomConfig {
        &self.base.config
    }

    /// How many items were rejected, by reason, and how many were cancelled.
    #[must_use]
    pub fn stats(&self) -> RoomStats {
        self.base.stats
    }
}

/// For the full room, and for the files of this module.
impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    /// An empty queue with this configuration, clock and counters.
    pub(super) fn from_base(base: RoomBase) -> Self {
        let lanes = Lanes::new(&base.config);
        Self::empty(base, lanes)
    }

    pub(super) fn base(&self) -> &RoomBase {
        &self.base
    }

    pub(super) fn base_mut(&mut self) -> &mut RoomBase {
        &mut self.base
    }

    /// How many wait at this level.
    pub(super) fn waiting_at(&self, level: u8) -> usize {
        self.by_level.count(level)
    }

    /// The waiter that is evicted first.
    pub(super) fn lowest(&self) -> Option<u32> {
        match &self.eviction {
            Some(order) => order.last(),
            None => self.by_level.lowest_and_latest(),
        }
    }

    /// Sets the order of equals, in all lanes.
    pub(super) fn update_age_order(&mut self) {
        let first = self.by_level.first_silent(&self.waiters);
        let first = first.map(|idx| self.waiters.meta(idx)).map(|meta| {
            // A parked waiter is in no lane, and a queue of levels alone has none.
            let lane = (!meta.is_parked && meta.lane != NONE).then_some(meta.lane);
            let pool = lane.and_then(|lane| self.lanes.pools(lane).first().copied());
            (meta, pool.unwrap_or(ONLY_POOL))
        });
        self.base.update_age_order(first);
        self.lanes.set_age_order(&self.waiters, self.base.age_order);
    }

    pub(super) fn base_and_waiters(&mut self) -> (&mut RoomBase, &Waiters<T>) {
        (&mut self.base, &self.waiters)
    }

    pub(super) fn waiters(&self) -> &Waiters<T> {
        &self.waiters
    }

    pub(super) fn waiters_mut(&mut self) -> &mut Waiters<T> {
        &mut self.waiters
    }

    pub(super) fn lanes(&self) -> &Lanes<L> {
        &self.lanes
    }

    /// The lanes, to be changed, and the waiters in them.
    pub(super) fn lanes_mut(&mut self) -> (&mut Lanes<L>, &Waiters<T>) {
        (&mut self.lanes, &self.waiters)
    }

    /// Charges a tenant `cost` units more, in the lane and level in which it was served.
    pub(super) fn charge(&mut self, account: &Account<L>, cost: u32) {
        let (waiters, config) = (&self.waiters, &self.base.config);
        self.lanes.charge(waiters, account, cost, config);
    }

    /// The lane with this key. `ask` is called if it has to be opened.
    #[inline]
    pub(super) fn lane(&mut self, key: L, ask: impl FnOnce(&L) -> (PoolSet, Partition)) -> u32 {
        self.lanes.lane(key, ask)
    }
}

impl<L, T> std::fmt::Debug for WaitQueue<L, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitQueue")
            .field("config", &self.base.config)
            .field("waiting", &self.base.waiting)
            .field("stats", &self.base.stats)
            .finish_non_exhaustive()
    }
}
