//! The full room: a [`WaitQueue`] in front of a capacity.
//!
//! The queue knows the order, the capacity knows the slots. The [pump](pump) brings the two together: it grants free
//! slots to the best waiters that they can serve.

mod predict;
mod pump;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::account::Share;
use super::nanos::Nanos;
use super::room::{Arrival, ExpectedWait, Room, Waiter, all_pools, ask_on_demand, lease, slots};
use super::room_base::RoomBase;
use super::wait_queue::lanes::{Head, Lanes, NO_PUMP, Scope};
use super::wait_queue::{Relink, WaitQueue};
use super::waiters::{WaitLimits, WaiterId, WaiterMeta, Waiters};
use super::{
    Account, AdmitOutcome, Capacity, Discipline, KeptSlots, LeaseError, Partition, PoolId, PoolSet,
    Priority, RejectReason, Tenant, Ticket, WakeList,
};

/// Waiters of any number of lanes, in the order of any discipline.
pub(crate) struct FullRoom<C: Capacity, W> {
    queue: WaitQueue<C::Lane, Waiter<C, W>>,
    /// The number of the latest pump. A group of lanes that was found busy notes in which.
    pumps: u64,
    /// As [`Room::missed_slot`].
    missed_slot: bool,
    /// Whether a waiter stands in its lane again for which any slot may be free: its tenant was at its limit.
    unparked: bool,
}

/// What the capacity says to an arrival.
enum Attempt<C: Capacity> {
    /// A slot that no better waiter could use.
    Leased(C::Lease),
    /// No slot will ever serve the demand.
    Unservable(C::Unservable),
    /// The request has to wait, in this lane.
    Busy { lane: u32 },
}

impl<C: Capacity, W> FullRoom<C, W> {
    pub(crate) fn new(base: RoomBase) -> Self {
        let mut queue = WaitQueue::from_base(base);
        queue.limit_tenants();
        Self::of(queue)
    }

    /// A room in the order of this queue.
    fn of(queue: WaitQueue<C::Lane, Waiter<C, W>>) -> Self {
        Self {
            queue,
            pumps: 0,
            missed_slot: false,
            unparked: false,
        }
    }

    /// A room with these waiters, each in its new lane. The flows of tenants keep their state from the old lanes.
    pub(crate) fn rebuild(
        base: RoomBase,
        waiters: Waiters<Waiter<C, W>>,
        relinks: Vec<Relink<C::Lane>>,
        old_lanes: Option<Lanes<C::Lane>>,
        now: Nanos,
    ) -> Self {
        Self::of(WaitQueue::from_parts(
            base, waiters, relinks, old_lanes, now,
        ))
    }

    /// Takes the room apart, to build another of its waiters.
    pub(crate) fn into_parts(self) -> (RoomBase, Waiters<Waiter<C, W>>, Lanes<C::Lane>) {
        self.queue.into_parts()
    }

    /// Whether tenants have shares in any lane.
    pub(crate) fn is_fair(&self) -> bool {
        self.queue.lanes().have_shares()
    }

    /// The lanes that have waiters, and the waiter that goes next in each.
    pub(crate) fn heads(&self) -> impl Iterator<Item = (&C::Lane, &WaiterMeta)> {
        let heads = self.queue.lanes().heads();
        heads.map(|(lane, idx)| (lane, self.queue.waiters().meta(idx)))
    }

    /// The number of waiters that the same pools can serve.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&PoolSet, usize)> {
        self.queue.lanes().waiting()
    }

    /// The pools that could serve a waiter.
    pub(crate) fn pools(&self, id: WaiterId) -> &PoolSet {
        self.queue.lanes().pools(self.waiters().meta(id.idx).lane)
    }

    /// Whether any of these may be another one since this was last called.
    pub(crate) fn take_heads_changed(&mut self) -> bool {
        self.queue.lanes_mut().0.take_heads_changed()
    }

    /// A request of this tenant gave its slot back, or is about to: the release of the slot follows.
    pub(crate) fn on_tenant_released(&mut self, tenant: &Tenant) {
        self.unparked |= self.queue.on_tenant_released(tenant);
    }

    /// Charges a tenant for a request that it was served. No waiter is answered.
    pub(crate) fn charge(&mut self, account: &Account<C::Lane>, cost: u32) {
        self.queue.charge(account, cost);
        let lanes = self.queue.lanes();
        let lane = account.lane.as_ref();
        // Elsewhere a flow's usage is a count of requests, whatever they cost.
        if lane.map(|lane| lanes.discipline_of(lane)) != Some(Discipline::Fair) {
            return;
        }
        let Share { tenant, level, .. } = &account.share;
        let base = self.queue.base_mut();
        base.on_charged(Priority(*level), tenant, cost.into());
    }

    /// All waiters, in the order of arrival, and what the capacity says of their lanes now. It may panic.
    pub(crate) fn ask_lanes(capacity: &C, waiters: &Waiters<Waiter<C, W>>) -> Vec<Relink<C::Lane>> {
        // Each lane is asked for once.
        let mut known: HashMap<C::Lane, (PoolSet, Partition)> = HashMap::new();
        let all = waiters.oldest_first().into_iter();
        all.map(|idx| {
            let key = capacity.lane(&waiters.payload(idx).demand);
            let ask = || (capacity.pools(&key), capacity.partition(&key));
            let (pools, partition) = known.entry(key.clone()).or_insert_with(ask).clone();
            Relink {
                idx,
                key,
                pools,
                partition,
            }
        })
        .collect()
    }

    /// Leases a slot for a request that arrives, if one is free that no better waiter could use. `Busy`: it has to wait.
    ///
    /// The capacity is asked for the request's own slot first, because most arrivals at a busy capacity find none. If there
    /// is one that a better waiter could use, it is given back and granted to the best; that may leave another for the
    /// request. Every other slot that a waiter could use has a release of its own on the way.
    ///
    /// Ends because each round but the last answers a waiter. If a round answers none, another thread took the slot in
    /// between, or the capacity changed and has not announced it yet. Then the request waits for that release, or
    /// for [`on_capacity_changed`](Room::on_capacity_changed).
    fn lease_in_order(
        &mut self,
        capacity: &C,
        demand: &C::Demand,
        (ticket, limits): (&Ticket, WaitLimits),
        (lane, now): (u32, Nanos),
        wakes: &mut WakeList<W>,
    ) -> Result<C::Lease, LeaseError<C::Unservable>> {
        loop {
            // Each round: waiters of its own tenant may have been served.
            if !self.queue.may_lease(&ticket.tenant) {
                return Err(LeaseError::Busy);
            }

            let (lease, pool) = lease(capacity, demand, self.kept(ticket, limits, now))?;
            let (scope, best) = self.best_for(pool, lane);
            let goes_first = best.is_none_or(|best| {
                self.queue
                    .newcomer_goes_before((ticket, limits), lane, best, now)
            });
            if goes_first {
                return Ok(lease);
            }
            if !self.pass_on(capacity, lease, scope, wakes) {
                return Err(LeaseError::Busy);
            }
        }
    }

    /// The slots that a newcomer has to leave free.
    fn kept(&self, ticket: &Ticket, limits: WaitLimits, now: Nanos) -> KeptSlots {
        match self.base().reserves.is_empty() {
            true => KeptSlots::NONE,
            false => {
                let level = self.queue.newcomer(ticket, limits, now).level;
                self.base().kept_above(level)
            }
        }
    }

    /// The best waiter that competes for a slot of `pool`, which a request of `lane` has leased.
    fn best_for(&self, pool: PoolId, lane: u32) -> (Scope, Option<Head>) {
        let lanes = self.queue.lanes();
        // Its own group, too, whether or not the capacity says that the pool serves it.
        let scope = Scope::Claim(pool, lanes.group(lane));
        (scope, lanes.best(self.queue.waiters(), scope, NO_PUMP))
    }

    /// Releases a slot and grants it to a better waiter. Says whether any waiter was answered: if none was, asking for
    /// another slot could go on without end.
    fn pass_on(
        &mut self,
        capacity: &C,
        lease: C::Lease,
        scope: Scope,
        wakes: &mut WakeList<W>,
    ) -> bool {
        self.give_back(capacity, lease);
        let waiting = self.queue.len();
        self.pump(capacity, scope, wakes);
        self.queue.len() < waiting
    }

    /// Asks the capacity for a slot, and for the request's lane if it has to wait.
    ///
    /// The capacity may panic in here. Nothing has changed then, except that waiters may have been answered.
    fn lease_or_lane(
        &mut self,
        capacity: &C,
        demand: &C::Demand,
        (ticket, limits): (&Ticket, WaitLimits),
        now: Nanos,
        wakes: &mut WakeList<W>,
    ) -> Attempt<C> {
        // Without a waiter there is no better one: no lane is needed to know that.
        if self.queue.is_empty() && self.queue.may_lease(&ticket.tenant) {
            match lease(capacity, demand, self.kept(ticket, limits, now)) {
                Ok((lease, _)) => return Attempt::Leased(lease),
                Err(LeaseError::Unservable(why)) => return Attempt::Unservable(why),
                Err(LeaseError::Busy) => {}
            }
        }
        let ask = |lane: &C::Lane| (capacity.pools(lane), capacity.partition(lane));
        let lane = self.queue.lane(capacity.lane(demand), ask);
        if self.queue.is_empty() {
            // Busy, as found above; or its tenant is at its limit.
            return Attempt::Busy { lane };
        }
        match self.lease_in_order(capacity, demand, (ticket, limits), (lane, now), wakes) {
            Ok(lease) => Attempt::Leased(lease),
            Err(LeaseError::Unservable(why)) => Attempt::Unservable(why),
            Err(LeaseError::Busy) => Attempt::Busy { lane },
        }
    }
}

impl<C: Capacity, W> Room<C, W> for FullRoom<C, W> {
    fn base(&self) -> &RoomBase {
        self.queue.base()
    }

    fn base_mut(&mut self) -> &mut RoomBase {
        self.queue.base_mut()
    }

    fn waiters(&self) -> &Waiters<Waiter<C, W>> {
        self.queue.waiters()
    }

    fn waiters_mut(&mut self) -> &mut Waiters<Waiter<C, W>> {
        self.queue.waiters_mut()
    }

    fn base_and_waiters(&mut self) -> (&mut RoomBase, &Waiters<Waiter<C, W>>) {
        self.queue.base_and_waiters()
    }

    fn first_pool(&self, idx: u32) -> PoolId {
        // Still open: a lane is only closed when another one is opened.
        let pools = self.queue.lanes().pools(self.waiters().meta(idx).lane);
        // A lane without pools: any will do, its waiters are never served.
        pools.first().copied().unwrap_or(PoolId(0))
    }

    fn flows(&self, idx: u32) -> Option<Discipline> {
        let lane = self.waiters().meta(idx).lane;
        self.queue.lanes().flows(lane)
    }

    fn lane_hash(&self, capacity: &C, demand: &C::Demand) -> u32 {
        match C::SINGLE_LANE {
            // As in the plain room.
            true => 0,
            false => self.queue.lanes().hash_of(&capacity.lane(demand)),
        }
    }

    fn missed_slot(&mut self) -> &mut bool {
        &mut self.missed_slot
    }

    fn waiting_at(&self, level: u8) -> usize {
        self.queue.waiting_at(level)
    }

    fn expected_wait_at(&self, capacity: &C, level: u8) -> Option<ExpectedWait> {
        self.longest_wait(capacity, level)
    }

    fn lowest(&self) -> Option<u32> {
        self.queue.lowest()
    }

    fn observe_new_limits(&mut self, capacity: &C) {
        for &pool in all_pools(capacity).iter() {
            let load = self.base_mut().overload.pool_mut(pool);
            if !load.has_slots(slots(capacity, pool)) {
                self.observe(capacity, pool);
            }
        }
    }

    fn head(&self) -> Option<WaiterId> {
        self.queue.peek()
    }

    fn position(&self, id: WaiterId) -> Option<usize> {
        self.queue.position(id)
    }

    fn next_timeout(&self) -> Nanos {
        self.queue.next_end()
    }

    fn next_promotion(&self) -> Nanos {
        self.queue.next_promotion()
    }

    fn arrive(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Nanos,
        wakes: &mut WakeList<W>,
    ) -> Arrival<C> {
        let limits = self.base().limits(&ticket, now);
        // The capacity may panic: the caller gets its demand back, and the panic with it.
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            self.lease_or_lane(capacity, &demand, (&ticket, limits), now, wakes)
        }));
        let lane = match attempt {
            Err(panic) => return Arrival::panicked(panic, demand),
            Ok(Attempt::Leased(lease)) => {
                if !self.queue.is_empty() {
                    let level = || Priority(self.queue.newcomer(&ticket, limits, now).level);
                    ask_on_demand(capacity, |it| it.on_overtake(&lease, level()));
                }
                self.queue.on_leased(&ticket.tenant);
                return Arrival::ended(AdmitOutcome::Leased(lease), demand);
            }
            Ok(Attempt::Unservable(why)) => {
                let why = RejectReason::Unservable(why);
                return Arrival::ended(AdmitOutcome::Rejected(why), demand);
            }
            Ok(Attempt::Busy { lane }) => lane,
        };
        // The request has to wait, if it may.
        self.observe_lane(capacity, lane);
        let predicted = match self.predict(capacity, &ticket, limits, lane) {
            Ok(predicted) => predicted,
            Err(why) => return Arrival::ended(AdmitOutcome::Rejected(why), demand),
        };
        match self.queue.place_for(&ticket, lane, limits.arrival, now) {
            Err(why) => return Arrival::ended(AdmitOutcome::Rejected(why), demand),
            Ok(Some(displaced)) => self.reject_idx(displaced, RejectReason::Displaced, wakes),
            Ok(None) => {}
        }
        let id = self
            .queue
            .insert(ticket, limits, lane, now, |_| Waiter::new(demand));
        // Set here: `insert` also serves queues without slots, in which no wait is predicted.
        let lane_hash = self.hash_of_lane(lane);
        let meta = self.waiters_mut().meta_mut(id.idx);
        (meta.predicted, meta.lane_hash) = (predicted, lane_hash);
        self.queue.trim_if_due(now);
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
        // Asked before anything changes: the capacity may panic.
        let ask = |lane: &C::Lane| (capacity.pools(lane), capacity.partition(lane));
        let lane = self.queue.lane(capacity.lane(demand), ask);
        self.observe_lane(capacity, lane);
        let limits = self.base().limits(&ticket, now);
        self.queue.replace_ticket(idx, ticket, limits, lane, now);
        let lane_hash = self.hash_of_lane(lane);
        self.waiters_mut().meta_mut(idx).lane_hash = lane_hash;
        let waiter = self.waiters_mut().payload_mut(idx);
        std::mem::swap(&mut waiter.demand, demand);
    }

    fn on_release(&mut self, capacity: &C, pool: PoolId, wakes: &mut WakeList<W>) {
        self.observe(capacity, pool);
        let scope = match self.unparked {
            true => Scope::All,
            false => Scope::Pool(pool),
        };
        self.pump(capacity, scope, wakes);
    }

    fn on_capacity_grown(&mut self, capacity: &C, wakes: &mut WakeList<W>) {
        self.observe_waiters(capacity);
        self.pump(capacity, Scope::All, wakes);
    }

    fn on_capacity_changed(&mut self, capacity: &C, now: Nanos, wakes: &mut WakeList<W>) {
        // Asked before anything changes: the capacity is user code and may panic.
        let relinks = Self::ask_lanes(capacity, self.queue.waiters());
        self.queue.rebuild(relinks, now);
        let mut evicted = Vec::new();
        // Only these: the bounds of the room and of tenants have not changed.
        self.queue
            .evict_from_partitions(|id, why| evicted.push((id, why)));
        self.reject_unlinked(evicted, wakes);
        self.observe_pools_in_service(capacity);
        self.observe_waiters(capacity);
        self.pump(capacity, Scope::All, wakes);
        // Last: a waiter that gets a slot needs no end of its wait.
        self.advance(now, wakes);
    }

    /// As [`lease_in_order`](Self::lease_in_order), for a waiter that is queued already. Ends for the same reasons.
    fn retry(&mut self, capacity: &C, id: WaiterId, wakes: &mut WakeList<W>) {
        while self.queue.waits(id) && !self.waiters().meta(id.idx).is_parked {
            // Not `lease_for`: this is its own task, and a panic of the capacity goes to its caller.
            let kept = self.base().kept_above(self.waiters().meta(id.idx).level);
            let (lease, pool) = match lease(capacity, &self.queue.get(id).demand, kept) {
                Ok(leased) => leased,
                Err(LeaseError::Busy) => return,
                Err(LeaseError::Unservable(why)) => {
                    return self.reject_idx(id.idx, RejectReason::Unservable(why), wakes);
                }
            };
            let (scope, best) = self.best_for(pool, self.queue.waiters().meta(id.idx).lane);
            // `None` if the capacity names a pool that does not serve the waiter's lane.
            if best.is_none_or(|best| best.idx == id.idx) {
                return self.grant(capacity, id.idx, (lease, pool), wakes);
            }
            if !self.pass_on(capacity, lease, scope, wakes) {
                return;
            }
        }
    }

    fn advance(&mut self, now: Nanos, wakes: &mut WakeList<W>) {
        // Ends because each round unlinks a waiter.
        while let Some(expired) = self.queue.expire_next(now) {
            self.reject_unlinked([expired], wakes);
        }
        if self.base().has_age_order() {
            self.queue.update_age_order();
        }
    }

    fn unlink(&mut self, idx: u32, is_served: bool) {
        self.queue.unlink(idx, is_served);
    }

    fn evict_excess(&mut self, wakes: &mut WakeList<W>) {
        let mut evicted = Vec::new();
        self.queue.evict_excess(|id, why| evicted.push((id, why)));
        self.reject_unlinked(evicted, wakes);
    }

    fn trim_if_empty(&mut self) {
        self.queue.trim_if_empty();
    }
}
