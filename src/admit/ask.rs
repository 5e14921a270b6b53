//! Calls to a capacity, which may be user code.
//!
//! A panic of a capacity must not reach the present request, because the capacity is mostly asked on behalf of another
//! one. The panic is therefore logged, once for each call, and replaced by an answer. A slot then counts as busy, and a
//! lane as unknown. A number becomes the one of a capacity that does not report it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::capacity::Partition;
use super::{
    Capacity, KeptSlots, LeaseError, OnDemandCapacity, PoolId, PoolSet, Priority, SlotState,
    SlotUsage,
};

/// The error of a capacity that panicked over a lane.
#[derive(Debug)]
pub(crate) struct UnknownLane;

/// Returns the answer of a capacity, or `None` if it panicked.
#[inline]
pub(crate) fn ask<C: Capacity, R>(capacity: &C, question: impl FnOnce(&C) -> R) -> Option<R> {
    if C::NEVER_PANICS {
        return Some(question(capacity));
    }
    // The assertion is sound, because the capacity is shared and the caller has no state of it to repair.
    match catch_unwind(AssertUnwindSafe(|| question(capacity))) {
        Ok(answer) => Some(answer),
        // The panic hook has already reported the value of the panic.
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

/// Takes a slot, and asks for its pool. If the capacity panics over the pool, the slot is given back.
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

/// Gives a slot back. Returns its pool, or `None` if the capacity panicked.
#[inline]
pub(crate) fn release<C: Capacity>(capacity: &C, lease: C::Lease) -> Option<PoolId> {
    ask(capacity, |capacity| capacity.release(lease))
}

/// Returns the pool of a lease, or `None` if the capacity panicked.
pub(crate) fn pool<C: Capacity>(capacity: &C, lease: &C::Lease) -> Option<PoolId> {
    ask(capacity, |capacity| capacity.pool(lease))
}

#[inline]
pub(crate) fn lane<C: Capacity>(capacity: &C, demand: &C::Demand) -> Result<C::Lane, UnknownLane> {
    ask(capacity, |capacity| capacity.lane(demand)).ok_or(UnknownLane)
}

pub(crate) fn about_lane<C: Capacity>(
    capacity: &C,
    lane: &C::Lane,
) -> Result<(PoolSet, Partition), UnknownLane> {
    ask(capacity, |capacity| {
        (capacity.pools(lane), capacity.partition(lane))
    })
    .ok_or(UnknownLane)
}

pub(crate) fn pools_in_service<C: Capacity>(capacity: &C) -> Option<PoolSet> {
    ask(capacity, |capacity| capacity.all_pools())?
}

/// Returns the pools that are in service, for reports. If they are unknown, pool 0 stands for all.
pub(crate) fn all_pools<C: Capacity>(capacity: &C) -> PoolSet {
    pools_in_service(capacity).unwrap_or_else(|| PoolSet::one(PoolId(0)))
}

/// Returns the number of slots of a pool, and the number of those that are free.
pub(crate) fn usage<C: Capacity>(capacity: &C, pool: PoolId) -> (usize, usize) {
    let usage = ask(capacity, |capacity| capacity.pool_usage(pool));
    let SlotUsage { slots, in_use } = usage.unwrap_or_default();
    (slots, slots.saturating_sub(in_use))
}

/// Returns `true` if `pool` has a free slot beside the `kept` ones, which are reserved for other requests.
pub(crate) fn is_free<C: Capacity>(capacity: &C, pool: PoolId, kept: KeptSlots) -> bool {
    let (slots, free) = usage(capacity, pool);
    free > kept.of(slots)
}

/// Returns `true` if a slot is free and ready beside the `kept` ones, which are reserved for other requests.
pub(crate) fn has_free_slot<C: Capacity>(capacity: &C, kept: KeptSlots) -> bool {
    let pools = all_pools(capacity);
    let mut free = pools.iter().filter(|&&pool| is_free(capacity, pool, kept));
    free.any(|&pool| slot_state(capacity, pool) == SlotState::Ready)
}

/// Returns the number of slots of a pool, or 1 if the capacity panicked.
#[inline]
pub(crate) fn slots<C: Capacity>(capacity: &C, pool: PoolId) -> usize {
    ask(capacity, |capacity| capacity.pool_usage(pool).slots).unwrap_or(1)
}

/// Returns the number of leases that were given so far, or 0 if the capacity panicked.
#[inline]
pub(crate) fn leased<C: Capacity>(capacity: &C) -> u64 {
    ask(capacity, |capacity| capacity.leased()).unwrap_or(0)
}

/// Returns the state of the slots of a pool. They are ready if the capacity does not serve on demand.
pub(crate) fn slot_state<C: Capacity>(capacity: &C, pool: PoolId) -> SlotState {
    on_demand(capacity, |it| it.slot_state(pool)).unwrap_or(SlotState::Ready)
}

pub(crate) fn on_overtake<C: Capacity>(capacity: &C, lease: &C::Lease, level: Priority) {
    on_demand(capacity, |it| it.on_overtake(lease, level));
}

#[inline]
pub(crate) fn is_on_demand<C: Capacity>(capacity: &C) -> bool {
    on_demand(capacity, |_| ()).is_some()
}

/// Calls a method of a capacity that serves on demand. Returns `None` for any other capacity, and if the method panics.
#[inline]
pub(crate) fn on_demand<C: Capacity, R>(
    capacity: &C,
    call: impl FnOnce(&dyn OnDemandCapacity<C::Lease>) -> R,
) -> Option<R> {
    ask(capacity, |capacity| capacity.on_demand().map(call))?
}
