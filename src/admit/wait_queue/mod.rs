//! The wait queue: waiters in order, over lanes, tenants, priorities and deadlines.
//!
//! It knows nothing of slots. [`FullRoom`](super::full_room::FullRoom) puts it in front of a capacity; a request queue is
//! one behind a lock.

mod aging;
mod by_level;
pub(super) mod discipline;
mod heap;
pub(super) mod lanes;
mod partitions;

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use self::by_level::ByLevel;
use self::discipline::{FlowState, Newcomer};
use self::lanes::{Lanes, NO_PUMP, Scope};
use self::partitions::Partitions;
use super::capacity::{Partition, PoolSet};
use super::nanos::{NEVER, Nanos};
use super::ordered_queue::OrderedQueue;
use super::room_base::RoomBase;
#[cfg(feature = "batch")]
use super::trim::INTERVAL;
use super::trim::KEPT;
use super::waiters::{WaitLimits, WaiterId, WaiterMeta, Waiters};
use super::{Priority, PriorityLevels, RejectReason, RoomStats, Tenant, Ticket, WaitingRoomConfig};

/// A bounded, ordered set of waiting items, over lanes that `L` names.
///
/// # How to use it
///
/// - [`push`](Self::push) adds an item, or says why it may not wait.
/// - [`peek`](Self::peek) names the item that goes next, [`pop`](Self::pop) takes it to be served, and
///   [`remove`](Self::remove) takes any item for any other reason. With [`skip`](Self::skip) the next one can be seen, and
///   [`restore`](Self::restore) brings the skipped one back.
/// - Before each of these, bring the queue up to date: [`advance`](Self::advance) promotes, and names, one after the other,
///   the items whose wait has ended, until there are none.
///
/// An item *waits* until it is taken, or until its wait ends; then it is *unlinked* and stays there until it is
/// [taken](Self::take).
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
    /// All whose wait ends, in the order in which it does.
    timeouts: OrderedQueue<(Nanos, u64)>,
    /// All that will be promoted, in the order in which they are.
    promotions: OrderedQueue<(Nanos, u64)>,
    /// All waiters, where one may be displaced by another, or the oldest is asked for.
    arrivals: ByLevel,
    partitions: Partitions,
    /// How many of each tenant wait, if that is bounded.
    tenants: HashMap<Tenant, usize>,
    tracks_oldest: bool,
}

/// An item that was queued, and the one that it displaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// The item.
    pub id: WaiterId,
    /// An item of lower priority that lost its place; it is unlinked, and to be [taken](WaitQueue::take).
    pub displaced: Option<WaiterId>,
}

/// An item that is out of the order for a moment, to be [restored](WaitQueue::restore).
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
        let base = RoomBase::new(config, now);
        let lanes = Lanes::new(&base.config);
        Self::empty(base, lanes)
    }

    fn empty(base: RoomBase, lanes: Lanes<L>) -> Self {
        let levels = base.config.levels.count();
        Self {
            waiters: Waiters::new(base.max_wait()),
            lanes,
            timeouts: OrderedQueue::new(),
            promotions: OrderedQueue::new(),
            arrivals: ByLevel::new(levels),
            partitions: Partitions::new(levels),
            tenants: HashMap::new(),
            tracks_oldest: false,
            base,
        }
    }

    /// From now on the queue knows which item arrived first. To be called while it is empty.
    pub fn track_oldest(&mut self) {
        self.tracks_oldest = true;
    }

    /// Adds an item that arrives at `now`, in a lane that is served by one pool and waits in the queue's own partition.
    ///
    /// # Errors
    ///
    /// Why it may not wait. Then nothing has changed.
    #[inline]
    pub fn push(
        &mut self,
        ticket: Ticket,
        lane: L,
        now: Instant,
        item: impl FnOnce(WaiterId) -> T,
    ) -> Result<Pushed, RejectReason> {
        let now = self.base.epoch.nanos(now);
        self.push_at(ticket, lane, now, item)
    }

    fn push_at(
        &mut self,
        ticket: Ticket,
        lane: L,
        now: Nanos,
        item: impl FnOnce(WaiterId) -> T,
    ) -> Result<Pushed, RejectReason> {
        let limits = self.base.limits(&ticket, now);
        self.trim_if_due(now);
        let lane = self.lane(lane, |_| {
            (PoolSet::one(super::PoolId(0)), Partition::default())
        });
        let displaced = match self.place_for(&ticket, lane, limits, now) {
            Ok(displaced) => displaced,
            Err(why) => {
                self.base.stats.reject(&why);
                return Err(why);
            }
        };
        if let Some(displaced) = displaced {
            self.unlink(displaced, false);
            self.base.stats.reject(&RejectReason::<()>::Displaced);
        }
        let id = self.insert(ticket, limits, lane, now, item);
        let displaced = displaced.map(|idx| self.waiters.id(idx));
        Ok(Pushed { id, displaced })
    }

    /// The item that goes next.
    #[must_use]
    #[inline]
    pub fn peek(&self) -> Option<WaiterId> {
        let head = self.lanes.best(&self.waiters, Scope::All, NO_PUMP)?;
        Some(self.waiters.id(head.idx))
    }

    /// Takes an item to be served. With the [fair](super::Discipline::Fair) discipline, its tenant pays for it. `None` if
    /// it does not wait.
    #[inline]
    pub fn pop(&mut self, id: WaiterId) -> Option<T> {
        if !self.waiters.waits(id) {
            return None;
        }
        self.unlink(id.idx, true);
        self.base.departures.depart();
        Some(self.take(id))
    }

    /// Takes an item that will not be served. `None` if it does not wait.
    pub fn remove(&mut self, id: WaiterId) -> Option<T> {
        if !self.waiters.waits(id) {
            return None;
        }
        self.unlink(id.idx, false);
        self.base.stats.cancelled += 1;
        Some(self.take(id))
    }

    /// Takes an item whose wait has ended.
    pub fn take(&mut self, id: WaiterId) -> T {
        let item = self.waiters.remove(id.idx);
        self.trim_if_empty();
        item
    }

    /// Takes an item out of the order, so that the one behind it can be seen. It keeps its place. Until it is restored, no
    /// item may be pushed and no wait may end.
    pub fn skip(&mut self, id: WaiterId) -> Skipped {
        self.waiters.meta_mut(id.idx).is_queued = false;
        self.lanes.skip(&self.waiters, id.idx);
        Skipped(id)
    }

    /// Puts a skipped item back where it was.
    pub fn restore(&mut self, Skipped(id): Skipped) {
        self.waiters.meta_mut(id.idx).is_queued = true;
        self.lanes.restore(&self.waiters, id.idx);
    }

    /// Brings the queue up to `now`. The wait of the item that is returned has ended, for this reason; call it again
    /// until there is none.
    #[inline]
    pub fn advance(&mut self, now: Instant) -> Option<(WaiterId, RejectReason)> {
        let now = self.base.epoch.nanos(now);
        let expired = self.expire_next(now)?;
        self.base.stats.reject(&expired.1);
        Some(expired)
    }

    /// Unlinks the next waiter whose wait has ended by `now`; promotes waiters when there is none left.
    #[inline]
    pub(super) fn expire_next<N>(&mut self, now: Nanos) -> Option<(WaiterId, RejectReason<N>)> {
        match self.timeouts.first() {
            Some(((end, _), idx)) if end <= now => {
                let why = self
                    .waiters
                    .meta(idx)
                    .limits
                    .why_expired(self.waiters.max_wait);
                self.unlink(idx, false);
                Some((self.waiters.id(idx), why))
            }
            _ => {
                self.promote(now);
                None
            }
        }
    }

    /// When to call [`advance`](Self::advance) next. `None` if no wait ends.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.base.epoch.instant(self.next_end())
    }

    #[inline]
    pub(super) fn next_end(&self) -> Nanos {
        self.timeouts.first().map_or(NEVER, |((end, _), _)| end)
    }

    /// Stops accepting. Items that wait still do.
    pub fn stop_accepting(&mut self) {
        self.base.is_closed = true;
    }

    /// Unlinks all items, which are to be [taken](Self::take): they are rejected as shutting down. Stops accepting.
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

    /// Changes the configuration. Every item keeps its place in the order, and a level keeps its items by name; items of a
    /// name that is gone get the default level. Items that have no place any more are unlinked and returned, with the
    /// reason, the latest of the lowest level first.
    pub fn reconfigure(
        &mut self,
        config: WaitingRoomConfig,
        now: Instant,
    ) -> Vec<(WaiterId, RejectReason)> {
        let now = self.base.epoch.nanos(now);
        let lanes = self.waiters.oldest_first().into_iter();
        let lanes = lanes
            .map(|idx| {
                let (key, pools, partition) = self.lanes.describe(self.waiters.meta(idx).lane);
                Relink {
                    idx,
                    key,
                    pools,
                    partition,
                }
            })
            .collect();
        rename_levels(&mut self.waiters, &self.base.config.levels, &config.levels);
        self.base.config = config;
        self.rebuild(lanes, now);
        let mut ended = Vec::new();
        while let Some(expired) = self.expire_next(now) {
            ended.push(expired);
        }
        self.evict_excess(|id, why| ended.push((id, why)));
        for (_, why) in &ended {
            self.base.stats.reject(why);
        }
        ended
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

    /// How many wait.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.base.waiting
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.base.waiting == 0
    }

    /// Whether the queue has stopped accepting.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.base.is_closed
    }

    /// Whether anything here depends on the time.
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

    /// The item.
    #[must_use]
    pub fn get(&self, id: WaiterId) -> &T {
        self.waiters.payload(id.idx)
    }

    /// The item, to be changed.
    pub fn get_mut(&mut self, id: WaiterId) -> &mut T {
        self.waiters.payload_mut(id.idx)
    }

    /// Where an item stands among those that compete with it, in the order in which they would be taken now: 1 is next.
    /// `None` if it does not wait. O(n log n).
    #[must_use]
    pub fn position(&self, id: WaiterId) -> Option<usize> {
        if !self.waiters.waits(id) {
            return None;
        }
        let order = self
            .lanes
            .forecast(&self.waiters, self.waiters.meta(id.idx).lane);
        order
            .iter()
            .position(|&idx| idx == id.idx)
            .map(|nth| nth + 1)
    }

    /// The next item and all that compete with it, in the order in which they would be taken. O(n log n).
    #[must_use]
    pub fn in_order(&self) -> Vec<WaiterId> {
        let Some(head) = self.peek() else {
            return Vec::new();
        };
        let lane = self.waiters.meta(head.idx).lane;
        let order = self.lanes.forecast(&self.waiters, lane).into_iter();
        order.map(|idx| self.waiters.id(idx)).collect()
    }

    /// When the item arrived that arrived first, if that is [tracked](Self::track_oldest). O(levels).
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let first = self.arrivals.first()?;
        self.base
            .epoch
            .instant(self.waiters.meta(first).limits.arrival)
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

    /// What became of the items that were not taken.
    #[must_use]
    pub fn stats(&self) -> RoomStats {
        self.base.stats
    }

    /// How long it takes until `ahead` items have been taken, by the measured rate; `None` until one was measured.
    #[must_use]
    pub fn estimated_wait(&self, ahead: usize) -> Option<Duration> {
        self.base.estimated_wait(ahead)
    }
}

/// A waiter, and the lane that it is to be in.
pub(crate) struct Relink<L> {
    pub(crate) idx: u32,
    pub(crate) key: L,
    pub(crate) pools: PoolSet,
    pub(crate) partition: Partition,
}

/// For the full room, and for this module.
impl<L: Clone + Eq + Hash, T> WaitQueue<L, T> {
    pub(super) fn from_base(base: RoomBase) -> Self {
        let lanes = Lanes::new(&base.config);
        Self::empty(base, lanes)
    }

    /// A queue with these waiters, which were in another room before, in their lanes of now. The flows of tenants keep
    /// their state from the lanes of before.
    pub(super) fn from_parts(
        base: RoomBase,
        waiters: Waiters<T>,
        relinks: Vec<Relink<L>>,
        lanes: Option<Lanes<L>>,
        now: Nanos,
    ) -> Self {
        let lanes = lanes.unwrap_or_else(|| Lanes::new(&base.config));
        let mut queue = Self::empty(base, lanes);
        queue.waiters = waiters;
        queue.rebuild(relinks, now);
        queue
    }

    pub(super) fn into_parts(self) -> (RoomBase, Waiters<T>, Lanes<L>) {
        (self.base, self.waiters, self.lanes)
    }

    pub(super) fn base(&self) -> &RoomBase {
        &self.base
    }

    pub(super) fn base_mut(&mut self) -> &mut RoomBase {
        &mut self.base
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

    /// The lane with this key. `ask` is called if it has to be opened.
    #[inline]
    pub(super) fn lane(&mut self, key: L, ask: impl FnOnce(&L) -> (PoolSet, Partition)) -> u32 {
        self.lanes.lane(key, ask)
    }

    /// Where a request may wait: in a free place (`None`) or in that of a waiter which it displaces; or why it may not.
    pub(super) fn place_for<N>(
        &self,
        ticket: &Ticket,
        lane: u32,
        limits: WaitLimits,
        now: Nanos,
    ) -> Result<Option<u32>, RejectReason<N>> {
        if self.base.is_closed {
            return Err(RejectReason::ShuttingDown);
        }
        if let Some(why) = self.base.refusal(ticket, limits, now) {
            return Err(why);
        }
        if let Some(max) = self.base.config.max_size_per_tenant
            && self
                .tenants
                .get(&ticket.tenant)
                .map_or(0, |&waiting| waiting)
                >= max
        {
            return Err(RejectReason::TenantFull);
        }
        let partition = self.lanes.partition(lane);
        let lowest = if !self.partitions.has_room(partition) {
            self.partitions.lowest_and_latest(partition.id)
        } else if !self.base.has_room() {
            self.arrivals.lowest_and_latest()
        } else {
            return Ok(None);
        };
        let own = self.level_of(ticket.priority, limits.arrival, now);
        let is_lower = |idx: u32| self.waiters.meta(idx).level > own;
        match lowest.filter(|&idx| self.base.config.displace && is_lower(idx)) {
            Some(idx) => Ok(Some(idx)),
            None => Err(RejectReason::Full),
        }
    }

    /// Adds a waiter to a lane, whether or not there is a place for it.
    #[inline]
    pub(super) fn insert(
        &mut self,
        ticket: Ticket,
        limits: WaitLimits,
        lane: u32,
        now: Nanos,
        payload: impl FnOnce(WaiterId) -> T,
    ) -> WaiterId {
        let priority = self.base.config.levels.clamp(ticket.priority);
        let key = self.base.next_key(&ticket, limits);
        let meta = WaiterMeta::new(key, priority, limits, ticket);
        let id = self.waiters.insert(meta, payload);
        self.link(id.idx, lane, None, now);
        id
    }

    /// Whether a request would go before a waiter, if it were queued now.
    pub(super) fn newcomer_goes_before(
        &self,
        (ticket, limits): (&Ticket, WaitLimits),
        lane: u32,
        best: lanes::Head,
        now: Nanos,
    ) -> bool {
        let newcomer = Newcomer {
            key: self.base.key_if_queued(ticket, limits),
            level: self.level_of(ticket.priority, limits.arrival, now),
            tenant: &ticket.tenant,
            cost: u128::from(ticket.cost.max(1)),
            end: limits.end(self.waiters.max_wait),
        };
        let config = &self.base.config;
        self.lanes
            .newcomer_goes_before(&self.waiters, newcomer, lane, best, config)
    }

    /// Links a waiter wherever it has to be found again.
    fn link(&mut self, idx: u32, lane: u32, flow: Option<FlowState>, now: Nanos) {
        let meta = self.waiters.meta(idx);
        let level = self.level_of(Priority(meta.priority), meta.limits.arrival, now);
        let meta = self.waiters.meta_mut(idx);
        (meta.level, meta.lane) = (level, lane);
        let seq = meta.seq;
        self.lanes
            .push(&mut self.waiters, idx, flow, &self.base.config);
        self.base.on_queued();
        let end = self.waiters.end(idx);
        if end < NEVER {
            self.timeouts.push((end, seq), idx);
        }
        if self.base.config.max_size_per_tenant.is_some() {
            let tenant = self.waiters.meta(idx).tenant().clone();
            *self.tenants.entry(tenant).or_default() += 1;
        }
        self.link_level(idx);
    }

    /// Links a waiter among those of its level.
    fn link_level(&mut self, idx: u32) {
        if self.has_arrivals() {
            self.arrivals.push(&self.waiters, idx);
        }
        if self.lanes.have_bounds() {
            let partition = self.lanes.partition(self.waiters.meta(idx).lane);
            if partition.max_size.is_some() {
                let displace = self.base.config.displace;
                self.partitions
                    .push(&self.waiters, partition, displace, idx);
            }
        }
        self.link_promotion(idx);
    }

    /// Unlinks a waiter from those of this level, where it does not wait any more.
    fn unlink_level(&mut self, idx: u32, level: u8) {
        if self.has_arrivals() {
            self.arrivals.remove(&self.waiters, idx, level);
        }
        if self.lanes.have_bounds() {
            let partition = self.lanes.partition(self.waiters.meta(idx).lane);
            if partition.max_size.is_some() {
                let displace = self.base.config.displace;
                self.partitions
                    .remove(&self.waiters, partition.id, displace, idx, level);
            }
        }
        self.unlink_promotion(idx, level);
    }

    fn has_arrivals(&self) -> bool {
        self.base.config.displace || self.tracks_oldest
    }

    /// Ends a wait, with a slot if the waiter `is_served`. Its entry stays.
    #[inline]
    pub(super) fn unlink(&mut self, idx: u32, is_served: bool) {
        let end = self.waiters.end(idx);
        let meta = self.waiters.meta_mut(idx);
        meta.waits = false;
        let (level, seq) = (meta.level, meta.seq);
        match is_served {
            true => self.lanes.serve(&self.waiters, idx),
            false => self.lanes.remove(&self.waiters, idx, level),
        }
        if end < NEVER {
            let waiters = &self.waiters;
            self.timeouts.remove((end, seq), |&(_, seq), idx| {
                waiters.waits(WaiterId { idx, seq })
            });
        }
        self.base.waiting -= 1;
        if self.base.config.max_size_per_tenant.is_some() {
            self.unlink_tenant(idx);
        }
        self.unlink_level(idx, level);
    }

    fn unlink_tenant(&mut self, idx: u32) {
        let tenant = self.waiters.meta(idx).tenant();
        if let Some(waiting) = self.tenants.get_mut(tenant) {
            *waiting -= 1;
            if *waiting == 0 {
                self.tenants.remove(tenant);
            }
        }
    }

    /// Links all waiters anew, in the order of arrival, each to its lane of now.
    pub(super) fn rebuild(&mut self, relinks: Vec<Relink<L>>, now: Nanos) {
        let old = self.clear_links();
        for Relink {
            idx,
            key,
            pools,
            partition,
        } in relinks
        {
            let flow = self.lanes.flow_state_from(&old, &self.waiters, idx);
            let lane = self.lane(key, |_| (pools, partition));
            self.link(idx, lane, flow, now);
        }
    }

    /// Forgets where waiters are linked, and returns the lanes of before.
    fn clear_links(&mut self) -> Lanes<L> {
        let levels = self.base.config.levels.count();
        self.waiters.max_wait = self.base.max_wait();
        self.timeouts = OrderedQueue::new();
        self.promotions = OrderedQueue::new();
        self.arrivals = ByLevel::new(levels);
        self.partitions = Partitions::new(levels);
        self.tenants = HashMap::new();
        self.base.waiting = 0;
        let new = self.lanes.renewed(&self.base.config);
        std::mem::replace(&mut self.lanes, new)
    }

    /// Unlinks the waiters that have no place any more.
    pub(super) fn evict_excess<N>(&mut self, mut evicted: impl FnMut(WaiterId, RejectReason<N>)) {
        if let Some(max) = self.base.config.max_size_per_tenant {
            for idx in self.waiters.latest_first() {
                let tenant = self.waiters.meta(idx).tenant();
                if self
                    .tenants
                    .get(tenant)
                    .is_some_and(|&waiting| waiting > max)
                {
                    self.unlink(idx, false);
                    evicted(self.waiters.id(idx), RejectReason::TenantFull);
                }
            }
        }
        self.evict_from_partitions(&mut evicted);
        let too_many = self.base.waiting.saturating_sub(self.base.config.max_size);
        if too_many > 0 {
            for idx in self.waiters.latest_first().into_iter().take(too_many) {
                self.unlink(idx, false);
                evicted(self.waiters.id(idx), self.base.why_evicted());
            }
        }
    }

    /// Unlinks the waiters that have no place any more in their partition.
    pub(super) fn evict_from_partitions<N>(
        &mut self,
        mut evicted: impl FnMut(WaiterId, RejectReason<N>),
    ) {
        if !self.partitions.any_overfull() {
            return;
        }
        for idx in self.waiters.latest_first() {
            let partition = self.lanes.partition(self.waiters.meta(idx).lane);
            if self.partitions.is_overfull(partition) {
                self.unlink(idx, false);
                evicted(self.waiters.id(idx), RejectReason::Full);
            }
        }
    }

    /// An entry was taken out: gives memory back if it was the last.
    #[inline]
    pub(super) fn trim_if_empty(&mut self) {
        let capacity = self.waiters.capacity();
        if self.waiters.is_empty() && capacity > KEPT && self.base.high_water.is_excess(capacity, 0)
        {
            self.waiters.trim();
            self.clear_links();
        }
    }

    /// A request arrives: gives memory back if the queue has been small for a while.
    #[inline]
    pub(super) fn trim_if_due(&mut self, now: Nanos) {
        let capacity = self.waiters.capacity();
        if self.base.high_water.is_due(capacity, now)
            && self.base.high_water.look(capacity, self.base.waiting, now)
        {
            self.trim();
        }
    }

    #[cold]
    fn trim(&mut self) {
        self.waiters.trim();
        self.lanes.trim(&mut self.waiters);
        self.timeouts.trim();
        self.promotions.trim();
        self.tenants.shrink_to_fit();
    }

    /// For a timer that has nothing else to do: gives memory back, or says when to look again. `None`: not before
    /// another item waits.
    #[cfg(feature = "batch")]
    pub(crate) fn trim_idle(&mut self, now: Instant) -> Option<Instant> {
        self.trim_if_empty();
        let keeps_more = self.base.waiting == 0 && self.waiters.capacity() > KEPT;
        keeps_more.then(|| now + INTERVAL)
    }
}

/// Each waiter keeps its level by name.
pub(super) fn rename_levels<T>(
    waiters: &mut Waiters<T>,
    old: &PriorityLevels,
    new: &PriorityLevels,
) {
    for idx in waiters.oldest_first() {
        let meta = waiters.meta_mut(idx);
        meta.priority = new.parse(old.name(Priority(meta.priority)).as_bytes()).0;
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
