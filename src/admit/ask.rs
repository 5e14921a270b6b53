//! Questions to a capacity, which may be code of a user.
//!
//! A panic of a capacity must not reach a request, which is mostly another one than that the capacity is asked for. So it is
//! logged, once for each call, and counts as an answer: a slot is busy, a lane is not known, a number is that of a capacity
//! that does not tell it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::capacity::Partition;
use super::{
    Capacity, KeptSlots, LeaseError, OnDemandCapacity, PoolId, PoolSet, Priority, SlotState,
    SlotUsage,
};

/// The capacity panicked over a lane.
#[derive(Debug)]
pub(crate) struct UnknownLane;

/// Returns the answer of a capacity. `None` if it panicked.
#[inline]
pub(crate) fn ask<C: Capacity, R>(capacity: &C, question: impl FnOnce(&C) -> R) -> Option<R> {
    if C::NEVER_PANICS {
        return Some(question(capacity));
    }
    // The capacity is shared, so what it left half done is not the caller's to mend.
    match catch_unwind(AssertUnwindSafe(|| question(capacity))) {
        Ok(answer) => Some(answer),
        // The panic hook has reported its value.
        Err(_) => {
            log();
            None
        }
    }
}

#[cold]
fn log() {
    tracing::error!("a capacity panicked");
}

/// Takes a slot, if one is free.
#[inline]
pub(crate) fn try_lease<C: Capacity>(
    capacity: &C,
    demand: &C::Demand,
    kept: KeptSlots,
) -> Result<C::Lease, LeaseError<C::Unservable>> {
    let lease = ask(capacity, |capacity| match kept == KeptSlots::NONE {
        true => capacity.try_lease(demand),
        false => capacity.try_lease_keeping(demand, kept),
    });
    lease.unwrap_or(Err(LeaseError::Busy))
}

/// Takes a slot, and asks for its pool. If the capacity does not tell that, the slot is given back.
#[inline]
pub(crate) fn lease<C: Capacity>(
    capacity: &C,
    demand: &C::Demand,
    kept: KeptSlots,
) -> Result<(C::Lease, PoolId), LeaseError<C::Unservable>> {
    let lease = try_lease(capacity, demand, kept)?;
    match ask(capacity, |capacity| capacity.pool(&lease)) {
        Some(pool) => Ok((lease, pool)),
        None => {
            _ = release(capacity, lease);
            Err(LeaseError::Busy)
        }
    }
}

/// Gives a slot back. Returns its pool, if the capacity tells it.
#[inline]
pub(crate) fn release<C: Capacity>(capacity: &C, lease: C::Lease) -> Option<PoolId> {
    ask(capacity, |capacity| capacity.release(lease))
}

/// Returns the pool of a lease, if the capacity tells it.
pub(crate) fn pool<C: Capacity>(capacity: &C, lease: &C::Lease) -> Option<PoolId> {
    ask(capacity, |capacity| capacity.pool(lease))
}

/// Returns the lane in which a demand waits.
#[inline]
pub(crate) fn lane<C: Capacity>(capacity: &C, demand: &C::Demand) -> Result<C::Lane, UnknownLane> {
    ask(capacity, |capacity| capacity.lane(demand)).ok_or(UnknownLane)
}

/// Returns the pools and the partition of a lane.
pub(crate) fn about_lane<C: Capacity>(
    capacity: &C,
    lane: &C::Lane,
) -> Result<(PoolSet, Partition), UnknownLane> {
    ask(capacity, |capacity| {
        (capacity.pools(lane), capacity.partition(lane))
    })
    .ok_or(UnknownLane)
}

/// Returns the pools that are in service, if that is known.
pub(crate) fn pools_in_service<C: Capacity>(capacity: &C) -> Option<PoolSet> {
    ask(capacity, |capacity| capacity.all_pools())?
}

/// Returns the pools that are in service, for reports: one, with the number 0, if that is not known.
pub(crate) fn all_pools<C: Capacity>(capacity: &C) -> PoolSet {
    pools_in_service(capacity).unwrap_or_else(|| PoolSet::one(PoolId(0)))
}

/// Returns the number of slots of a pool, and the number of those that are free.
pub(crate) fn usage<C: Capacity>(capacity: &C, pool: PoolId) -> (usize, usize) {
    let usage = ask(capacity, |capacity| capacity.pool_usage(pool));
    let SlotUsage { slots, in_use } = usage.unwrap_or_default();
    (slots, slots.saturating_sub(in_use))
}

/// Returns `true` if a slot of `pool` is free for a request that has to leave the `kept` ones.
pub(crate) fn is_free<C: Capacity>(capacity: &C, pool: PoolId, kept: KeptSlots) -> bool {
    let (slots, free) = usage(capacity, pool);
    free > kept.of(slots)
}

/// Returns `true` if a slot is free and ready, and no level keeps it from a request of this one.
pub(crate) fn has_free_slot<C: Capacity>(capacity: &C, kept: KeptSlots) -> bool {
    let pools = all_pools(capacity);
    let mut free = pools.iter().filter(|&&pool| is_free(capacity, pool, kept));
    free.any(|&pool| slot_state(capacity, pool) == SlotState::Ready)
}

/// Returns the number of slots of a pool.
#[inline]
pub(crate) fn slots<C: Capacity>(capacity: &C, pool: PoolId) -> usize {
    ask(capacity, |capacity| capacity.pool_usage(pool).slots).unwrap_or(1)
}

/// Returns the number of leases that were given so far; 0 if the capacity does not tell it.
#[inline]
pub(crate) fn leased<C: Capacity>(capacity: &C) -> u64 {
    ask(capacity, |capacity| capacity.leased()).unwrap_or(0)
}

/// Returns the state of the slots of a pool, which are ready if the capacity does not serve on demand.
pub(crate) fn slot_state<C: Capacity>(capacity: &C, pool: PoolId) -> SlotState {
    on_demand(capacity, |it| it.slot_state(pool)).unwrap_or(SlotState::Ready)
}

/// Tells the capacity that a request overtook all that wait.
pub(crate) fn on_overtake<C: Capacity>(capacity: &C, lease: &C::Lease, level: Priority) {
    on_demand(capacity, |it| it.on_overtake(lease, level));
}

/// Returns `true` if the capacity serves on demand.
#[inline]
pub(crate) fn is_on_demand<C: Capacity>(capacity: &C) -> bool {
    on_demand(capacity, |_| ()).is_some()
}

/// Calls a method of a capacity that serves on demand. Returns `None` for any other capacity, and if it panics.
#[inline]
pub(crate) fn on_demand<C: Capacity, R>(
    capacity: &C,
    call: impl FnOnce(&dyn OnDemandCapacity<C::Lease>) -> R,
) -> Option<R> {
    ask(capacity, |capacity| capacity.on_demand().map(call))?
}
