//! The full room: a [`WaitQueue`] in front of a capacity.
//!
//! The queue knows the order, the capacity the slots; what brings the two together is the [pump](pump), which gives
//! free slots to the best waiters that they can serve.

mod pump;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::nanos::Nanos;
use super::room::{Arrival, Room, Waiter, lease};
use super::room_base::RoomBase;
use super::wait_queue::lanes::{Lanes, NO_PUMP, Scope};
use super::wait_queue::{Relink, WaitQueue};
use super::waiters::{WaitLimits, WaiterId, Waiters};
use super::{
    AdmitOutcome, Capacity, LeaseError, Partition, PoolId, PoolSet, RejectReason, Ticket, WakeList,
};

/// Waiters of any number of lanes, in the order of any discipline.
pub(crate) struct FullRoom<C: Capacity, W> {
    queue: WaitQueue<C::Lane, Waiter<C, W>>,
    /// How many pumps there were, which numbers them.
    pumps: u64,
    missed_slot: bool,
}

impl<C: Capacity, W> FullRoom<C, W> {
    pub(crate) fn new(base: RoomBase) -> Self {
        Self::of(WaitQueue::from_base(base))
    }

    fn of(queue: WaitQueue<C::Lane, Waiter<C, W>>) -> Self {
        Self {
            queue,
            pumps: 0,
            missed_slot: false,
        }
    }

    /// A room with these waiters, in their lanes of now. The flows of tenants keep their state from the lanes of before.
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

    /// The room's waiters, to be moved to another.
    pub(crate) fn into_parts(self) -> (RoomBase, Waiters<Waiter<C, W>>, Lanes<C::Lane>) {
        self.queue.into_parts()
    }

    /// All that wait, in the order of arrival, and what the capacity says of their lanes now.
    pub(crate) fn ask_lanes(capacity: &C, waiters: &Waiters<Waiter<C, W>>) -> Vec<Relink<C::Lane>> {
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

    /// A slot for a request that arrives, if one is free that no better waiter could use. `Busy`: it has to wait.
    ///
    /// It asks for itself first, because most arrivals at a busy capacity find no slot. If it gets one that a better
    /// waiter could use, the slot goes back and to the best; that may leave another for it. Every other slot that a
    /// waiter here could use has a release of its own on the way.
    ///
    /// Ends because each round but the last answers a waiter. Where a better waiter refuses the slot, it has changed
    /// hands meanwhile, or the room has not been told of a change in the capacity yet: then the request waits for the
    /// release, or for [`on_capacity_changed`](Room::on_capacity_changed).
    fn lease_in_order(
        &mut self,
        capacity: &C,
        demand: &C::Demand,
        (ticket, limits): (&Ticket, WaitLimits),
        (lane, now): (u32, Nanos),
        wakes: &mut WakeList<W>,
    ) -> Result<C::Lease, LeaseError<C::Unservable>> {
        loop {
            let (lease, pool) = lease(capacity, demand)?;
            let scope = Scope::Claim(pool, self.queue.lanes().group(lane));
            let best = self
                .queue
                .lanes()
                .best(self.queue.waiters(), scope, NO_PUMP);
            let goes_first = best.is_none_or(|best| {
                self.queue
                    .newcomer_goes_before((ticket, limits), lane, best, now)
            });
            if goes_first {
                return Ok(lease);
            }
            self.give_back(capacity, lease);
            let waiting = self.queue.len();
            self.pump(capacity, scope, wakes);
            if self.queue.len() == waiting {
                return Err(LeaseError::Busy);
            }
        }
    }

    fn give_back(&mut self, capacity: &C, lease: C::Lease) {
        capacity.release(lease);
        // It was counted as given.
        self.queue.base_mut().stats.unclaimed += 1;
    }

    /// The first half of an arrival: a slot, or the request's lane.
    ///
    /// The capacity may panic in here. Nothing has changed then, but for waiters that were answered.
    fn lease_or_lane(
        &mut self,
        capacity: &C,
        demand: &C::Demand,
        (ticket, limits): (&Ticket, WaitLimits),
        now: Nanos,
        wakes: &mut WakeList<W>,
    ) -> Result<u32, Result<C::Lease, C::Unservable>> {
        if self.queue.is_empty() {
            match capacity.try_lease(demand) {
                Ok(lease) => return Err(Ok(lease)),
                Err(LeaseError::Unservable(why)) => return Err(Err(why)),
                Err(LeaseError::Busy) => {}
            }
        }
        let ask = |lane: &C::Lane| (capacity.pools(lane), capacity.partition(lane));
        let lane = self.queue.lane(capacity.lane(demand), ask);
        if self.queue.is_empty() {
            return Ok(lane);
        }
        match self.lease_in_order(capacity, demand, (ticket, limits), (lane, now), wakes) {
            Ok(lease) => Err(Ok(lease)),
            Err(LeaseError::Unservable(why)) => Err(Err(why)),
            Err(LeaseError::Busy) => Ok(lane),
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

    fn missed_slot(&mut self) -> &mut bool {
        &mut self.missed_slot
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

    fn arrive(
        &mut self,
        capacity: &C,
        ticket: Ticket,
        demand: C::Demand,
        now: Nanos,
        wakes: &mut WakeList<W>,
    ) -> Arrival<C> {
        let limits = self.base().limits(&ticket, now);
        // The demand is the caller's, also if the capacity panics.
        let found = catch_unwind(AssertUnwindSafe(|| {
            self.lease_or_lane(capacity, &demand, (&ticket, limits), now, wakes)
        }));
        let lane = match found {
            Err(panic) => return Arrival::panicked(panic, demand),
            Ok(Err(Ok(lease))) => return Arrival::ended(AdmitOutcome::Leased(lease), demand),
            Ok(Err(Err(why))) => {
                let why = RejectReason::Unservable(why);
                return Arrival::ended(AdmitOutcome::Rejected(why), demand);
            }
            Ok(Ok(lane)) => lane,
        };
        self.base_mut().observe_departures(now);
        match self.queue.place_for(&ticket, lane, limits, now) {
            Err(why) => return Arrival::ended(AdmitOutcome::Rejected(why), demand),
            Ok(Some(displaced)) => self.reject_idx(displaced, RejectReason::Displaced, wakes),
            Ok(None) => {}
        }
        let id = self
            .queue
            .insert(ticket, limits, lane, now, |_| Waiter::new(demand));
        self.queue.trim_if_due(now);
        Arrival::queued(id)
    }

    fn on_release(&mut self, capacity: &C, pool: PoolId, wakes: &mut WakeList<W>) {
        self.pump(capacity, Scope::Pool(pool), wakes);
    }

    fn on_capacity_grown(&mut self, capacity: &C, wakes: &mut WakeList<W>) {
        self.pump(capacity, Scope::All, wakes);
    }

    fn on_capacity_changed(&mut self, capacity: &C, now: Nanos, wakes: &mut WakeList<W>) {
        let relinks = Self::ask_lanes(capacity, self.queue.waiters());
        self.queue.rebuild(relinks, now);
        let mut evicted = Vec::new();
        self.queue
            .evict_from_partitions(|id, why| evicted.push((id, why)));
        self.reject_unlinked(evicted, wakes);
        self.pump(capacity, Scope::All, wakes);
    }

    /// As an arrival does, for a waiter that is queued already. Ends for the same reasons.
    fn retry(&mut self, capacity: &C, id: WaiterId, wakes: &mut WakeList<W>) {
        while self.queue.waits(id) {
            let (lease, pool) = match lease(capacity, &self.queue.get(id).demand) {
                Ok(leased) => leased,
                Err(LeaseError::Busy) => return,
                Err(LeaseError::Unservable(why)) => {
                    return self.reject_idx(id.idx, RejectReason::Unservable(why), wakes);
                }
            };
            let lane = self.queue.waiters().meta(id.idx).lane;
            let scope = Scope::Claim(pool, self.queue.lanes().group(lane));
            let best = self
                .queue
                .lanes()
                .best(self.queue.waiters(), scope, NO_PUMP);
            if best.is_none_or(|best| best.idx == id.idx) {
                return self.grant(id.idx, lease, wakes);
            }
            self.give_back(capacity, lease);
            let waiting = self.queue.len();
            self.pump(capacity, scope, wakes);
            if self.queue.len() == waiting {
                return;
            }
        }
    }

    fn advance(&mut self, now: Nanos, wakes: &mut WakeList<W>) {
        while let Some(expired) = self.queue.expire_next(now) {
            self.reject_unlinked([expired], wakes);
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
