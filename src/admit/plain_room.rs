//! The plain room: priority levels, each first come, first served.
//!
//! It serves the usual configuration: one lane, strict levels, a bound, `max_wait` and own deadlines, displacement,
//! removal of any waiter. It is a slab of waiters and a queue for each level. Everything else is served by the
//! [full room](super::full_room); where both could serve, a test shows that no call tells them apart.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::by_level::ByLevel;
use super::nanos::Nanos;
use super::ordered_queue::List;
use super::room::{Arrival, ExpectedWait, Room, Waiter, is_free, lease, lease_for, slots};
use super::room_base::{PredictedWait, RoomBase};
use super::trim::KEPT;
use super::waiters::{WaitLimits, WaiterId, WaiterMeta, Waiters};
use super::{
    AdmitOutcome, Capacity, Discipline, LeaseError, PoolId, Priority, RejectReason, Ticket,
    WaitingRoomConfig, WakeList,
};

/// Waiters of one lane, in the order of level and arrival.
pub(crate) struct PlainRoom<C: Capacity, W> {
    base: RoomBase,
    waiters: Waiters<Waiter<C, W>>,
    by_level: ByLevel,
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
        waiters.max_wait = base.max_wait();
        let mut room = Self {
            by_level: ByLevel::new(List::Level, base.config.levels.count()),
            missed_slot: false,
            base,
            waiters,
        };
        // `link` counts them again.
        room.base.waiting = 0;
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
        self.base.on_queued();
    }

    /// Grants free slots to waiters, in order, as long as there are any. With `only_one`, at most one slot: exactly one was
    /// released, and every other free one has a release of its own on the way.
    ///
    /// Ends because each round but the last answers a waiter.
    fn pump(&mut self, capacity: &C, only_one: bool, wakes: &mut WakeList<W>) {
        while let Some(idx) = self.head_idx() {
            let kept = self.base.kept_above(self.waiters.meta(idx).level);
            match lease_for(
                capacity,
                self.waiters.payload_mut(idx),
                kept,
                &mut self.missed_slot,
                wakes,
            ) {
                // The slot is for the next: it may ask for it in another way.
                Ok((lease, _)) if self.base.is_hopeless(self.waiters.meta(idx)) => {
                    self.give_back(capacity, lease);
                    self.reject_idx(idx, RejectReason::DeadlinePassed, wakes);
                }
                Ok(leased) => {
                    self.grant(capacity, idx, leased, wakes);
                    // A slot that was kept may be lent by now.
                    if only_one && self.base.reserves.is_empty() {
                        return;
                    }
                }
                // One lane: what is busy for the head is busy for all.
                Err(LeaseError::Busy) => return,
                // It took no slot: the next waiter is asked for.
                Err(LeaseError::Unservable(why)) => {
                    self.reject_idx(idx, RejectReason::Unservable(why), wakes);
                }
            }
        }
    }

    /// Whether a newcomer with this ticket goes before the head. True if no request waits.
    fn goes_first(&self, ticket: &Ticket, limits: WaitLimits) -> bool {
        let Some(head) = self.head_idx().map(|head| self.waiters.meta(head)) else {
            return true;
        };
        let Priority(level) = self.base.config.levels.clamp(ticket.priority);
        let order = self.base.age_order;
        let key = self.base.key_if_queued(ticket, limits);
        (level, order.key(key)) < (head.level, order.key(head.key()))
    }

    /// Leases a slot for a newcomer, after every waiter that goes before it was offered one. `Busy`: it has to wait.
    ///
    /// Ends because each round but the last answers a waiter.
    fn lease_in_order(
        &mut self,
        capacity: &C,
        demand: &C::Demand,
        (ticket, limits): (&Ticket, WaitLimits),
        wakes: &mut WakeList<W>,
    ) -> Result<C::Lease, LeaseError<C::Unservable>> {
        loop {
            if self.goes_first(ticket, limits) {
                let Priority(level) = self.base.config.levels.clamp(ticket.priority);
                return Ok(lease(capacity, demand, self.base.kept_above(level))?.0);
            }
            let waiting = self.base.waiting;
            self.pump(capacity, true, wakes);
            // No slot for the head, so none for the newcomer behind it.
            if self.base.waiting == waiting {
                return Err(LeaseError::Busy);
            }
        }
    }

    /// Makes sure that there is a place for a newcomer of this priority, by displacement if it must; or rejects it as full.
    fn make_room(
        &mut self,
        priority: Priority,
        wakes: &mut WakeList<W>,
    ) -> Result<(), RejectReason<C::Unservable>> {
        if self.base.has_room() {
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

    /// Counts the time up to now in which requests wait.
    fn observe(&mut self, capacity: &C) {
        let (now, is_empty) = (self.base.now, self.base.waiting == 0);
        let load = self.base.overload.pool_mut(ONLY_POOL);
        load.observe(now, slots(capacity, ONLY_POOL), is_empty);
    }

    /// The wait of a newcomer, in seconds; 0 if that is not known. Or the reason why it may not wait.
    fn predict(
        &mut self,
        capacity: &C,
        ticket: &Ticket,
        Priority(level): Priority,
        limits: WaitLimits,
    ) -> Result<f32, RejectReason<C::Unservable>> {
        if let Some(why) = self.base.refusal(ticket, limits, self.base.now) {
            return Err(why);
        }
        if !self.base.is_predicted(ticket) {
            return Ok(0.0);
        }
        let mut ahead = self.by_level.count_above(level);
        let key = self.base.key_if_queued(ticket, limits);
        if self.base.age_order.is_next(key) {
            ahead -= self.by_level.count_in(level);
        }
        let oldest = || {
            let oldest = self.by_level.oldest(&self.waiters)?;
            Some(self.waiters.meta(oldest).limits.arrival)
        };
        let ahead = self.base.ahead_of(ticket, limits, ahead, oldest);
        let wait = PredictedWait {
            pool: ONLY_POOL,
            lane_hash: ONLY_LANE,
            is_first: ahead == 0,
            flows: None,
            leased: self.base.leases_used(capacity.leased()),
            seconds: self.expected_wait(ahead),
        };
        Ok(self.base.admit(ticket, limits, wait)? as f32)
    }

    /// The wait of a newcomer with `ahead` waiters before it, in seconds; `None` while the pool is not measured.
    fn expected_wait(&self, ahead: usize) -> Option<f64> {
        let per_second = self.base.overload.per_second(ONLY_POOL)?;
        // It gets the slot after those of the waiters before it.
        Some((ahead + 1) as f64 / per_second)
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
        self.by_level.next_end(&self.waiters)
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
        if let Err(why) = self.make_room(priority, wakes) {
            return Arrival::ended(AdmitOutcome::Rejected(why), demand);
        }
        // Nothing rejects it from here on.
        let key = self.base.next_key(&ticket, limits);
        let mut meta = WaiterMeta::new(key, priority, limits, ticket);
        meta.predicted = predicted;
        let id = self.waiters.insert(meta, |_| Waiter::new(demand));
        self.link(id.idx);
        Arrival::queued(id)
    }

    fn on_release(&mut self, capacity: &C, _: PoolId, wakes: &mut WakeList<W>) {
        self.observe(capacity);
        self.pump(capacity, true, wakes);
    }

    fn on_capacity_grown(&mut self, capacity: &C, wakes: &mut WakeList<W>) {
        self.observe(capacity);
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
        // Ends because each round unlinks a waiter.
        while let Some(idx) = self.by_level.expired(&self.waiters, now) {
            let why = self
                .waiters
                .meta(idx)
                .limits
                .why_expired(self.waiters.max_wait);
            self.reject_idx(idx, why, wakes);
        }
        if self.base.has_age_order() {
            let oldest = self.by_level.oldest(&self.waiters);
            let oldest = oldest.map(|idx| self.waiters.meta(idx));
            self.base.update_age_order(oldest);
        }
    }

    fn unlink(&mut self, idx: u32, _: bool) {
        let meta = self.waiters.meta_mut(idx);
        meta.waits = false;
        let level = meta.level;
        self.by_level.remove(&mut self.waiters, idx, level);
        self.base.waiting -= 1;
    }

    fn trim_if_empty(&mut self) {
        let capacity = self.waiters.capacity();
        if self.waiters.is_empty() && capacity > KEPT && self.base.high_water.is_excess(capacity, 0)
        {
            self.waiters.trim();
        }
    }

    fn evict_excess(&mut self, wakes: &mut WakeList<W>) {
        let too_many = self.base.waiting.saturating_sub(self.base.config.max_size);
        for idx in self.waiters.latest_first().into_iter().take(too_many) {
            let why = self.base.why_evicted();
            self.reject_idx(idx, why, wakes);
        }
    }
}
