//! The plain room: priority levels, each first come, first served.
//!
//! It serves what most configurations ask for: one lane, strict levels, a bound, `max_wait` and own deadlines,
//! displacement, removal of any waiter. It is a slab of waiters, a queue for each level, and one more in the order in
//! which waits end. Everything else is the [full room's](super::full_room); where both apply they cannot be told apart.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::nanos::{NEVER, Nanos};
use super::ordered_queue::{ArrivalKey, OrderedQueue};
use super::room::{Arrival, Room, Waiter, lease, lease_for};
use super::room_base::RoomBase;
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
    /// The most urgent level first.
    levels: Box<[OrderedQueue<ArrivalKey>]>,
    /// All whose wait ends, in the order in which it does.
    timeouts: OrderedQueue<(Nanos, u64)>,
    missed_slot: bool,
}

impl<C: Capacity, W> PlainRoom<C, W> {
    /// Whether this room serves what is configured, in front of a capacity of this type.
    pub(crate) fn serves(config: &WaitingRoomConfig) -> bool {
        C::SINGLE_LANE
            && config.discipline == Discipline::Fifo
            && config.promote_after.is_none()
            && config.max_size_per_tenant.is_none()
    }

    /// A room with these waiters, in their order.
    pub(crate) fn new(base: RoomBase, mut waiters: Waiters<Waiter<C, W>>) -> Self {
        waiters.max_wait = base.max_wait();
        let mut room = Self {
            levels: (0..base.config.levels.count())
                .map(|_| OrderedQueue::new())
                .collect(),
            timeouts: OrderedQueue::new(),
            missed_slot: false,
            base,
            waiters,
        };
        room.base.waiting = 0;
        for idx in room.waiters.oldest_first() {
            let meta = room.waiters.meta_mut(idx);
            // Only waiters of a full room have been promoted.
            meta.level = meta.priority;
            room.link(idx);
        }
        room
    }

    /// The room's waiters, to be moved to another.
    pub(crate) fn into_parts(self) -> (RoomBase, Waiters<Waiter<C, W>>) {
        (self.base, self.waiters)
    }

    fn head_idx(&self) -> Option<u32> {
        self.levels.iter().find_map(OrderedQueue::head)
    }

    /// Adds a waiter to its level, and to those whose wait ends.
    #[inline]
    fn link(&mut self, idx: u32) {
        let (meta, end) = (self.waiters.meta(idx), self.waiters.end(idx));
        let seq = meta.seq;
        self.levels[usize::from(meta.level)].push(meta.key(), idx);
        if end < NEVER {
            self.timeouts.push((end, seq), idx);
        }
        self.base.on_queued();
    }

    /// Gives a free slot to the head, and to the next as long as there are more. Ends because each round but the last
    /// answers a waiter.
    ///
    /// With `only_one`, one slot is what came back: every other has a release of its own on the way.
    fn pump(&mut self, capacity: &C, only_one: bool, wakes: &mut WakeList<W>) {
        while let Some(idx) = self.head_idx() {
            match lease_for(
                capacity,
                self.waiters.payload_mut(idx),
                &mut self.missed_slot,
                wakes,
            ) {
                Ok((lease, _)) => {
                    self.grant(idx, lease, wakes);
                    if only_one {
                        return;
                    }
                }
                Err(LeaseError::Busy) => return,
                Err(LeaseError::Unservable(why)) => {
                    self.reject_idx(idx, RejectReason::Unservable(why), wakes);
                }
            }
        }
    }

    /// Whether a newcomer with this ticket goes before the head.
    fn goes_first(&self, ticket: &Ticket, limits: WaitLimits) -> bool {
        let Some(head) = self.head_idx().map(|head| self.waiters.meta(head)) else {
            return true;
        };
        let Priority(level) = self.base.config.levels.clamp(ticket.priority);
        (level, self.base.key_if_queued(ticket, limits)) < (head.level, head.key())
    }

    /// A slot for a newcomer, after every waiter that goes before it has been offered one. `Busy`: it has to wait.
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
                return Ok(lease(capacity, demand)?.0);
            }
            let waiting = self.base.waiting;
            self.pump(capacity, true, wakes);
            if self.base.waiting == waiting {
                return Err(LeaseError::Busy);
            }
        }
    }

    /// Makes room for a newcomer of this priority, or says that there is none.
    fn make_room(
        &mut self,
        priority: Priority,
        wakes: &mut WakeList<W>,
    ) -> Result<(), RejectReason<C::Unservable>> {
        if self.base.has_room() {
            return Ok(());
        }
        let lowest = self.levels.iter().rev().find_map(OrderedQueue::tail);
        match lowest {
            Some(idx) if self.base.config.displace && self.waiters.meta(idx).level > priority.0 => {
                self.reject_idx(idx, RejectReason::Displaced, wakes);
                Ok(())
            }
            _ => Err(RejectReason::Full),
        }
    }

    fn trim_if_due(&mut self, now: Nanos) {
        let capacity = self.waiters.capacity();
        if self.base.high_water.is_due(capacity, now)
            && self.base.high_water.look(capacity, self.base.waiting, now)
        {
            self.waiters.trim();
            self.levels.iter_mut().for_each(OrderedQueue::trim);
            self.timeouts.trim();
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

    fn missed_slot(&mut self) -> &mut bool {
        &mut self.missed_slot
    }

    fn head(&self) -> Option<WaiterId> {
        self.head_idx().map(|idx| self.waiters.id(idx))
    }

    fn position(&self, id: WaiterId) -> Option<usize> {
        let own = self.waiters.meta(id.idx).level;
        let mut before = 0;
        for (level, queue) in (0..=own).zip(&self.levels) {
            let order = queue.to_vec(|&(_, seq), idx| self.waiters.waits_at(level, idx, seq));
            match order.iter().position(|&idx| idx == id.idx) {
                Some(nth) => return Some(before + nth + 1),
                None => before += order.len(),
            }
        }
        None
    }

    fn next_timeout(&self) -> Nanos {
        self.timeouts.first().map_or(NEVER, |((end, _), _)| end)
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
        // The demand is the caller's, also if the capacity panics.
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
        self.base.observe_departures(now);
        self.trim_if_due(now);
        let priority = self.base.config.levels.clamp(ticket.priority);
        let refusal = self.base.refusal(&ticket, limits, now);
        if let Some(why) = refusal.or_else(|| self.make_room(priority, wakes).err()) {
            return Arrival::ended(AdmitOutcome::Rejected(why), demand);
        }
        let key = self.base.next_key(&ticket, limits);
        let meta = WaiterMeta::new(key, priority, limits, ticket);
        let id = self.waiters.insert(meta, |_| Waiter::new(demand));
        self.link(id.idx);
        Arrival::queued(id)
    }

    fn on_release(&mut self, capacity: &C, _: PoolId, wakes: &mut WakeList<W>) {
        self.pump(capacity, true, wakes);
    }

    fn on_capacity_grown(&mut self, capacity: &C, wakes: &mut WakeList<W>) {
        self.missed_slot = false;
        self.pump(capacity, false, wakes);
    }

    /// One lane is all there is, before and after.
    fn on_capacity_changed(&mut self, capacity: &C, _: Nanos, wakes: &mut WakeList<W>) {
        self.on_capacity_grown(capacity, wakes);
    }

    fn retry(&mut self, capacity: &C, id: WaiterId, wakes: &mut WakeList<W>) {
        // Ends because each round but the last answers a waiter.
        while self.waiters.waits(id) {
            if self.head_idx() == Some(id.idx) {
                match lease(capacity, &self.waiters.payload(id.idx).demand) {
                    Ok((lease, _)) => self.grant(id.idx, lease, wakes),
                    Err(LeaseError::Busy) => {}
                    Err(LeaseError::Unservable(why)) => {
                        self.reject_idx(id.idx, RejectReason::Unservable(why), wakes);
                    }
                }
                return;
            }
            let waiting = self.base.waiting;
            self.pump(capacity, true, wakes);
            if self.base.waiting == waiting {
                return;
            }
        }
    }

    fn advance(&mut self, now: Nanos, wakes: &mut WakeList<W>) {
        while let Some(((end, _), idx)) = self.timeouts.first()
            && end <= now
        {
            let why = self
                .waiters
                .meta(idx)
                .limits
                .why_expired(self.waiters.max_wait);
            self.reject_idx(idx, why, wakes);
        }
    }

    fn unlink(&mut self, idx: u32, _: bool) {
        let end = self.waiters.end(idx);
        let meta = self.waiters.meta_mut(idx);
        meta.waits = false;
        let (level, key) = (meta.level, meta.key());
        let waiters = &self.waiters;
        self.levels[usize::from(level)]
            .remove(key, |&(_, seq), idx| waiters.waits_at(level, idx, seq));
        if end < NEVER {
            self.timeouts.remove((end, key.1), |&(_, seq), idx| {
                waiters.waits(WaiterId { idx, seq })
            });
        }
        self.base.waiting -= 1;
    }

    fn trim_if_empty(&mut self) {
        let capacity = self.waiters.capacity();
        if self.waiters.is_empty() && capacity > KEPT && self.base.high_water.is_excess(capacity, 0)
        {
            self.waiters.trim();
            self.levels.iter_mut().for_each(OrderedQueue::trim);
            self.timeouts.trim();
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
