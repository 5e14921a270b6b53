//! Pools with slots that may be kept for a level.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tower_triage::admit::{Capacity, KeptSlots, LeaseError, PoolId, PoolSet, SlotUsage};

use super::{LANES, LEVELS, POOLS};

/// What a request asks: a lane, and, for the test, its level when it arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) lane: usize,
    pub(super) level: usize,
    pub(super) arrival: Instant,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pool {
    pub(super) slots: usize,
    pub(super) taken: usize,
}

impl Pool {
    pub(super) fn free(self) -> usize {
        self.slots.saturating_sub(self.taken)
    }
}

/// Pools with slots that may be kept. `ONE`: with one lane, so that waiters are ordered by level if the configuration allows.
#[derive(Debug, Default)]
pub(super) struct Pools<const ONE: bool>(pub(super) Mutex<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) pools: [Pool; POOLS],
    pub(super) leased: u64,
    /// How many slots a level has to leave free, by level and pool, as the test knows it.
    pub(super) kept: [[usize; POOLS]; LEVELS.len()],
    /// The time, and after how long requests are promoted, if they are.
    pub(super) promotions: Option<(Instant, Duration)>,
    /// What took a slot that is kept.
    pub(super) taken_wrongly: Option<Demand>,
}

impl State {
    /// Whether a request may take a slot of this pool.
    pub(super) fn may_take(&self, demand: &Demand, pool: usize) -> bool {
        self.pools[pool].free() > self.kept[self.level(demand)][pool]
    }

    /// The level of a request, promotions included.
    pub(super) fn level(&self, demand: &Demand) -> usize {
        let ups = self.promotions.map_or(0, |(now, interval)| {
            (now - demand.arrival).as_nanos() / interval.as_nanos()
        });
        demand.level.saturating_sub(ups as usize)
    }
}

impl<const ONE: bool> Pools<ONE> {
    pub(super) fn lane_of(demand: &Demand) -> usize {
        if ONE { 0 } else { demand.lane }
    }
}

impl<const ONE: bool> Capacity for Pools<ONE> {
    type Demand = Demand;
    type Lease = usize;
    type Lane = usize;
    type Unservable = Infallible;

    fn try_lease(&self, demand: &Demand) -> Result<usize, LeaseError<Infallible>> {
        self.try_lease_keeping(demand, KeptSlots::NONE)
    }

    fn try_lease_keeping(
        &self,
        demand: &Demand,
        kept: KeptSlots,
    ) -> Result<usize, LeaseError<Infallible>> {
        let mut state = self.0.lock().unwrap();
        let mut pools = LANES[Self::lane_of(demand)].iter().copied();
        let is_free = |&pool: &usize| {
            let pool = state.pools[pool];
            pool.free() > kept.of(pool.slots)
        };
        let pool = pools.find(is_free).ok_or(LeaseError::Busy)?;
        // Not asserted here: the room catches the panics of a capacity.
        if !state.may_take(demand, pool) {
            state.taken_wrongly = Some(*demand);
        }
        state.pools[pool].taken += 1;
        state.leased += 1;
        Ok(pool)
    }

    fn release(&self, pool: usize) -> PoolId {
        self.0.lock().unwrap().pools[pool].taken -= 1;
        PoolId(pool as u32)
    }

    fn pool(&self, &pool: &usize) -> PoolId {
        PoolId(pool as u32)
    }

    fn lane(&self, demand: &Demand) -> usize {
        Self::lane_of(demand)
    }

    fn pools(&self, &lane: &usize) -> PoolSet {
        LANES[lane]
            .iter()
            .map(|&pool| PoolId(pool as u32))
            .collect()
    }

    fn pool_usage(&self, pool: PoolId) -> SlotUsage {
        let pool = &self.0.lock().unwrap().pools[pool.0 as usize];
        SlotUsage {
            slots: pool.slots,
            in_use: pool.taken,
        }
    }

    fn all_pools(&self) -> Option<PoolSet> {
        let pools = if ONE { 1 } else { POOLS as u32 };
        Some((0..pools).map(PoolId).collect())
    }

    fn usage(&self) -> SlotUsage {
        let state = self.0.lock().unwrap();
        SlotUsage {
            slots: state.pools.iter().map(|pool| pool.slots).sum(),
            in_use: state.pools.iter().map(|pool| pool.taken).sum(),
        }
    }

    fn leased(&self) -> u64 {
        self.0.lock().unwrap().leased
    }
}
