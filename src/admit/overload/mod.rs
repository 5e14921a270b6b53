//! The decisions in overload: which arrivals to refuse because they would wait too long, and which waiters are no
//! longer worth a slot.
//!
//! The room predicts the wait of each arrival from the work ahead of it ([`wait`]) and from the rate at which its pools
//! hand slots over ([`pool_load`]), corrected by the outcome of past predictions. Above the target the arrival may be
//! refused. The target is as short as keeps the slots busy. It grows if slots were idle lately ([`idleness`]), and for
//! tenants and levels with weights that had less than their share while another had more ([`shares`]). Only
//! measurements of the slots decide, because clients could manipulate whatever the room learned from them. Where tenants share
//! slots by time, a request that costs far more than others has no prediction, because the price of its time is unknown.
//!
//! A request with a deadline is refused because of the deadline only if 19 of 20 such waits would be too long. Too long
//! means that even the shortest service of its lane would end too late ([`service_times`]).
//!
//! The constants were tuned with a recorded hour of a language model's requests, at 1.2 to 2 times the load that can be
//! served (see `simulations/overload`).

mod arrivals;
mod idleness;
mod pool_load;
mod reserves;
mod service_times;
mod shares;
mod wait;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::flow::FlowWeights;
use super::nanos::Nanos;
use super::{PoolId, WaitingRoomConfig};
pub(crate) use arrivals::Arriving;
use arrivals::ShortWaits;
use idleness::Idleness;
use pool_load::PoolLoad;
pub(crate) use reserves::Reserves;
pub use service_times::ServiceSample;
use service_times::ServiceTimes;
use shares::Shares;
pub(crate) use wait::{PoolBacklog, expected_wait};

/// The measurements of a room.
#[derive(Debug, Default)]
pub(crate) struct Overload {
    /// The measurements of each pool, by the pool's number.
    pools: Vec<PoolLoad>,
    levels: usize,
    pub(crate) idleness: Idleness,
    pub(crate) shares: Shares,
    pub(crate) service: ServiceTimes,
    short: ShortWaits,
}

/// The slots that could serve a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slots {
    /// At least one pool has its slots ready, without a break since this instant.
    Made { since: Nanos },
    /// The slots are being started.
    Making,
    /// The slots are stopped, and nothing starts them. They have been so since this instant.
    Unmade { since: Nanos },
}

/// The share of idle slots that is assumed before the first measurement.
const INITIAL: f64 = 0.16;
/// The number of pools that are measured apart. Higher numbers share the last entry, because a capacity is user code
/// and may number its pools as it likes.
const MAX_POOLS: usize = 1 << 16;

impl Overload {
    pub(crate) fn new(levels: usize, weights: &Arc<FlowWeights>) -> Self {
        Self {
            levels,
            idleness: Idleness::new(levels, INITIAL),
            shares: Shares::new(Arc::clone(weights)),
            ..Self::default()
        }
    }

    /// Applies another configuration.
    pub(crate) fn set_config(&mut self, config: &WaitingRoomConfig, weights: &Arc<FlowWeights>) {
        self.shares.set_weights(Arc::clone(weights));
        self.short = ShortWaits::default();
        let levels = config.levels.count();
        // The same number of levels counts as the same levels, whatever their names.
        if self.levels != levels {
            self.levels = levels;
            self.idleness = Idleness::new(levels, INITIAL);
            self.pools
                .iter_mut()
                .for_each(|pool| pool.set_levels(levels));
        }
    }

    /// Sets the pools that are in service from now on. The measurements of other pools are kept until they return to
    /// service.
    pub(crate) fn set_in_service(&mut self, pools: &[PoolId], now: Nanos) {
        let known = self.pools.len();
        let pools: BTreeSet<usize> = pools.iter().map(|&pool| index(pool)).collect();
        let count = pools.last().map_or(0, |last| last + 1).max(known);
        self.add_pools(count);
        for (nth, load) in self.pools.iter_mut().enumerate() {
            // A pool without an observation before was out of service.
            load.is_in_service &= nth < known;
            load.set_in_service(now, pools.contains(&nth));
        }
    }

    /// Returns the measurements of a pool.
    #[inline]
    pub(crate) fn pool_mut(&mut self, pool: PoolId) -> &mut PoolLoad {
        let pool = index(pool);
        if pool >= self.pools.len() {
            self.add_pools(pool + 1);
        }
        &mut self.pools[pool]
    }

    /// Adds pools up to this number.
    #[cold]
    #[inline(never)]
    fn add_pools(&mut self, count: usize) {
        let levels = self.levels;
        self.pools.resize_with(count, || PoolLoad::new(levels));
    }

    /// Returns the state of the slots of these pools together.
    pub(crate) fn slots_of(&self, pools: &[PoolId]) -> Slots {
        let loads = || pools.iter().filter_map(|&pool| self.load(pool));
        // A pool without observations counts as ready. Without a pool there is nothing to wait for.
        if loads().count() < pools.len() || pools.is_empty() {
            return Slots::Made { since: 0 };
        }
        // With slots on demand, a pool that came back counts only from its return, because the other pools may have
        // been starting slots until then.
        let is_on_demand = loads().any(|load| load.is_on_demand);
        let made_since = loads().filter_map(|load| {
            let since = load.made_since?;
            Some(match is_on_demand {
                true => since.max(load.in_service_since),
                false => since,
            })
        });
        match made_since.min() {
            Some(since) => Slots::Made { since },
            None if loads().any(|load| load.is_making) => Slots::Making,
            None => Slots::Unmade {
                since: loads().map(|load| load.load_ended).max().unwrap_or(0),
            },
        }
    }

    /// Returns the measurements of a pool, or `None` if it was never observed.
    fn load(&self, pool: PoolId) -> Option<&PoolLoad> {
        self.pools.get(index(pool))
    }

    /// Returns the number of slots that a pool hands over per second, if that is certain.
    pub(crate) fn per_second(&self, pool: PoolId) -> Option<f64> {
        let load = self.load(pool)?;
        load.per_second().filter(|_| load.is_certain())
    }

    /// Returns the number of slots that all pools together hand over per second. `None` if the rate of each pool is
    /// unknown.
    pub(crate) fn total_per_second(&self) -> Option<f64> {
        let known = self.pools.iter().filter(|pool| pool.is_in_service);
        let known = known.filter_map(PoolLoad::per_second);
        // The sum is 0 if all rates are unknown.
        Some(known.sum()).filter(|&total| total > 0.0)
    }

    /// Returns the mean time for which a request holds a slot of this pool, in seconds, if that is certain.
    pub(crate) fn service_seconds(&self, pool: PoolId) -> Option<f64> {
        let load = self.load(pool)?;
        load.service_seconds().filter(|_| load.is_certain())
    }
}

/// Returns the index of a pool's measurements.
#[inline]
fn index(PoolId(pool): PoolId) -> usize {
    (pool as usize).min(MAX_POOLS - 1)
}
