//! The plain room: priority levels, each first come, first served.
//!
//! It serves the usual configuration: one lane, strict levels, a bound, `max_wait` and own deadlines, displacement,
//! removal of any waiter. It is a slab of waiters and a queue for each level. Everything else is served by the
//! [full room](super::full_room); where both could serve, a test shows that no call tells them apart.

mod predict;
mod pump;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::admit::by_level::ByLevel;
use crate::admit::nanos::Nanos;
use crate::admit::ordered_queue::List;
use crate::admit::overload::Slots;
use crate::admit::room::{Arrival, ExpectedWait, Room, Waiter, is_free, lease, slots};
use crate::admit::room_base::RoomBase;
use crate::admit::timeouts::Timeouts;
use crate::admit::trim::KEPT;
use crate::admit::waiters::{WaiterId, WaiterMeta, Waiters};
use crate::admit::{
    AdmitOutcome, Capacity, Discipline, LeaseError, PoolId, Priority, RejectReason, Ticket,
    WaitingRoomConfig, WakeList,
};

/// Waiters of one lane, in the order of level and arrival.
pub(crate) struct PlainRoom<C: Capacity, W> {
    base: RoomBase,
    waiters: Waiters<Waiter<C, W>>,
    by_level: ByLevel,
    timeouts: Timeouts,
    /// As [`Room::missed_slot`].
    missed_slot: bool,
}

/// A capacity of one lane has one pool.
const ONLY_POOL: PoolId = PoolId(0);
/// Identifies the only lane in the service times. Waiters have it unless another is set.
const ONLY_LANE: u32 = 0;

impl<C: Capacity, W> PlainRoom<C, W> {
    /// Whether this room serves this configuration in front of a capacity of this type.
    pub(crate) fn serves(config: &WaitingRoomConfig) -> bool {
        C::SINGLE_LANE
            && config.discipline == Discipline::Fifo
            && config.promote_after.is_none()
            && config.level_weights.is_empty()
            && config.max_size_per_tenant.is_none()
            && config.max_concurrent_per_tenant.is_none()
    }

    /// A room with these waiters, in the order of their keys.
    pub(crate) fn new(base: RoomBase, mut waiters: Waiters<Waiter<C, W>>) -> Self {
        waiters.bounds = base.bounds();
        let mut room = Self {
            by_level: ByLevel::new(List::Level, base.config.levels.count()),
            timeouts: Timeouts::new(),
            missed_slot: false,
            base,
            waiters,
        };
        // `link` counts them again.
        room.base.on_all_unlinked();
        for idx in room.waiters.oldest_first() {
            let meta = room.waiters.meta_mut(idx);
            // A waiter that comes from a full room may have been promoted there.
            meta.level = meta.priority;
            room.link(idx);
        }
        room
    }

    /// Takes the room apart, to build another of its waiters.
    pub(crate) fn into_parts(self) -> (RoomBase, Waiters<Waiter<C, W>>) {
        (self.base, self.waiters)
    }

    fn head_idx(&self) -> Option<u32> {
        self.by_level.next(&self.waiters, self.base.age_order)
    }

    /// Adds a waiter to its level.
    #[inline]
    fn link(&mut self, idx: u32) {
        self.by_level.push(&mut self.waiters, idx);
        self.timeouts.push(&mut self.waiters, idx);
        self.base.on_queued(self.waiters.meta(idx).is_patient);
    }

    /// Makes sure that there is a place for a newcomer of this priority, by displacement if it must; or rejects it as full.
    /// One that `is_patient` needs none.
    fn make_room(
        &mut self,
        priority: Priority,
        is_patient: bool,
        wakes: &mut WakeList<W>,
    ) -> Result<(), RejectReason<C::Unservable>> {
        if is_patient || self.base.has_room() {
            return Ok(());
        }
        match self.by_level.lowest_and_latest() {
            // Only a lower level is displaced: among equals, the first to arrive stays.
            Some(idx) if self.base.config.displace && self.waiters.meta(idx).level > priority.0 => {
                self.reject_idx(idx, RejectReason::Displaced, wakes);
                Ok(())
            }
            _ => Err(RejectReason::Full),
        }
    }

    /// Gives memory back if few requests have waited for a while.
    fn trim_if_due(&mut self, now: Nanos) {
        let capacity = self.waiters.capacity();
        // `look` begins a new measurement, so it is asked only when it is time.
        if self.base.high_water.is_due(capacity, now)
            && self.base.high_water.look(capacity, self.base.waiting, now)
        {
            self.waiters.trim();
        }
    }
}

impl<C: Capacity, W> Room<C, W> for PlainRoom<C, W> {
    fn base(&self) -> &RoomBase {
        &self.base
    }

    fn base_mut(&mut self) -> &mut RoomBase {
        &mut self.base
    }

    fn waiters(&self) -> &Waiters<Waiter<C, W>> {
        &self.waiters
    }

    fn waiters_mut(&mut self) -> &mut Waiters<Waiter<C, W>> {
        &mut self.waiters
    }

    fn base_and_waiters(&mut self) -> (&mut RoomBase, &Waiters<Waiter<C, W>>) {
        (&mut self.base, &self.waiters)
    }

    fn first_pool(&self, _: u32) -> PoolId {
        ONLY_POOL
    }

    fn flows(&self, _: u32) -> Option<Discipline> {
        None
    }

    fn lane_hash(&self, _: &C, _: &C::Demand) -> u32 {
        ONLY_LANE
    }

    fn missed_slot(&mut self) -> &mut bool {
        &mut self.missed_slot
    }

    fn waiting_at(&self, level: u8) -> usize {
        self.by_level.count(level)
    }

    fn expected_wait_at(&self, capacity: &C, level: u8) -> Option<ExpectedWait> {
        let ahead = self.by_level.count_above(level);
        if ahead == 0 && is_free(capacity, ONLY_POOL, self.base.kept_above(level)) {
            return Some(ExpectedWait::none(ONLY_POOL));
        }
        let pool = ONLY_POOL;
        let seconds = self.expected_wait(ahead)?;
        Some(ExpectedWait { pool, seconds })
    }

    fn lowest(&self) -> Option<u32> {
        self.by_level.lowest_and_latest()
    }

    fn observe_new_limits(&mut self, capacity: &C) {
        let load = self.base.overload.pool_mut(ONLY_POOL);
        if !load.has_slots(slots(capacity, ONLY_POOL)) {
            self.observe(capacity);
        }
    }

    fn head(&self) -> Option<WaiterId> {
        self.head_idx().map(|idx| self.waiters.id(idx))
    }

    fn position(&self, id: WaiterId) -> Option<usize> {
        let own = self.waiters.meta(id.idx).level;
        // How many go before all waiters of the present level.
        let mut before = 0;
        for level in 0..=own {
            let order = self.base.age_order;
            let order = self.by_level.level(&self.waiters, level, order);
            match order.iter().position(|&idx| idx == id.idx) {
                Some(nth) => return Some(before + nth + 1),
                None => before += order.len(),
            }
        }
        // Not reached: a waiter is in the queue of its level.
        None
    }

    fn next_timeout(&self) -> Nanos {
        self.timeouts.next(&self.waiters)
    }

    fn arrive(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Nanos,
        wakes: &mut WakeList<W>,
    ) -> Arrival<C> {
        let limits = self.base.limits(&ticket, now);
        // The capacity may panic: the caller gets its demand back, and the panic with it.
        let leased = catch_unwind(AssertUnwindSafe(|| {
            self.lease_in_order(capacity, &demand, (&ticket, limits), wakes)
        }));
        match leased {
            Err(panic) => return Arrival::panicked(panic, demand),
            Ok(Ok(lease)) => return Arrival::ended(AdmitOutcome::Leased(lease), demand),
            Ok(Err(LeaseError::Unservable(why))) => {
                return Arrival::ended(
                    AdmitOutcome::Rejected(RejectReason::Unservable(why)),
                    demand,
                );
            }
            Ok(Err(LeaseError::Busy)) => {}
        }
        // The request has to wait, if it may.
        self.observe(capacity);
        self.trim_if_due(now);
        let priority = self.base.config.levels.clamp(ticket.priority);
        let predicted = match self.predict(capacity, &ticket, priority, limits) {
            Ok(predicted) => predicted,
            Err(why) => return Arrival::ended(AdmitOutcome::Rejected(why), demand),
        };
        if let Err(why) = self.make_room(priority, ticket.patient, wakes) {
            return Arrival::ended(AdmitOutcome::Rejected(why), demand);
        }
        // Nothing rejects it from here on.
        let key = self.base.next_key(&ticket, limits);
        let mut meta = WaiterMeta::new(key, priority, limits, ticket);
        meta.predicted = predicted;
        meta.set_entered(now);
        let id = self.waiters.insert(meta, |_| Waiter::new(demand));
        self.link(id.idx);
        Arrival::queued(id)
    }

    fn replace_ticket(
        &mut self,
        capacity: &C,
        idx: u32,
        ticket: Ticket,
        demand: &mut C::Demand,
        now: Nanos,
    ) {
        let limits = self.base.limits(&ticket, now);
        self.observe(capacity);
        self.unlink(idx, false);
        let priority = self.base.config.levels.clamp(ticket.priority);
        self.waiters.replace_ticket(idx, priority, limits, ticket);
        let waiter = self.waiters.payload_mut(idx);
        std::mem::swap(&mut waiter.demand, demand);
        self.waiters.meta_mut(idx).set_entered(now);
        self.link(idx);
    }

    fn on_release(&mut self, capacity: &C, _: PoolId, wakes: &mut WakeList<W>) {
        self.observe(capacity);
        self.pump(capacity, true, wakes);
    }

    fn on_capacity_grown(&mut self, capacity: &C, wakes: &mut WakeList<W>) {
        self.observe(capacity);
        // The head is asked for again below, so no slot stays missed.
        self.missed_slot = false;
        self.pump(capacity, false, wakes);
    }

    /// There is one lane before and after: only its slots may have changed.
    fn on_capacity_changed(&mut self, capacity: &C, _: Nanos, wakes: &mut WakeList<W>) {
        self.on_capacity_grown(capacity, wakes);
    }

    fn retry(&mut self, capacity: &C, id: WaiterId, wakes: &mut WakeList<W>) {
        // Ends because each round but the last answers a waiter, this one perhaps.
        while self.waiters.waits(id) {
            if self.head_idx() == Some(id.idx) {
                // Not `lease_for`: this is its own task, and a panic of the capacity goes to its caller.
                let kept = self.base.kept_above(self.waiters.meta(id.idx).level);
                match lease(capacity, &self.waiters.payload(id.idx).demand, kept) {
                    Ok(leased) => self.grant(capacity, id.idx, leased, wakes),
                    // It goes on waiting, for a release.
                    Err(LeaseError::Busy) => {}
                    Err(LeaseError::Unservable(why)) => {
                        self.reject_idx(id.idx, RejectReason::Unservable(why), wakes);
                    }
                }
                return;
            }
            let waiting = self.base.waiting;
            self.pump(capacity, true, wakes);
            // No slot for the head, so none for this one behind it.
            if self.base.waiting == waiting {
                return;
            }
        }
    }

    fn advance(&mut self, now: Nanos, wakes: &mut WakeList<W>) {
        // Ends because each round unlinks a waiter, or puts it off until later.
        while let Some(idx) = self.timeouts.due(&self.waiters, now) {
            let is_next = self.head_idx() == Some(idx);
            let slots = Slots::Made { since: 0 };
            let wait = self
                .base
                .wait_goes_on(self.waiters.meta_mut(idx), is_next, slots, now);
            match wait {
                Ok(end) => self.timeouts.extend(&mut self.waiters, idx, end),
                Err(why) => self.reject_idx(idx, why, wakes),
            }
        }
        if self.base.has_age_order() {
            let first = self.by_level.first_silent(&self.waiters);
            let first = first.map(|idx| (self.waiters.meta(idx), ONLY_POOL));
            self.base.update_age_order(first);
        }
    }

    fn unlink(&mut self, idx: u32, _: bool) {
        let meta = self.waiters.meta_mut(idx);
        meta.waits = false;
        let level = meta.level;
        self.by_level.remove(&mut self.waiters, idx, level);
        self.timeouts.remove(&mut self.waiters, idx);
        self.base.on_unlinked(self.waiters.meta(idx).is_patient);
    }

    fn trim_if_empty(&mut self) {
        let capacity = self.waiters.capacity();
        // `is_excess` begins a new measurement, so it is asked last.
        if self.waiters.is_empty() && capacity > KEPT && self.base.high_water.is_excess(capacity, 0)
        {
            self.waiters.trim();
        }
    }

    fn evict_excess(&mut self, wakes: &mut WakeList<W>) {
        let too_many = self.base.placed().saturating_sub(self.base.config.max_size);
        let mut latest = self.waiters.latest_first();
        latest.retain(|&idx| !self.waiters.meta(idx).is_patient);
        for idx in latest.into_iter().take(too_many) {
            let why = self.base.why_evicted();
            self.reject_idx(idx, why, wakes);
        }
    }
}
