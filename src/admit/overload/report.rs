//! Predictions about arrivals at a level, for reports. They leave all measurements as they are.

use super::{IDLE, MAX_POOLS, Overload, burst, burst_target, for_silent};
use crate::admit::{PoolId, WaitingRoomConfig};

impl Overload {
    /// Returns the factor by which to multiply a predicted wait of this level.
    pub(crate) fn correction(&self, PoolId(pool): PoolId, level: u8, predicted: f64) -> f64 {
        let load = self.pools.get((pool as usize).min(MAX_POOLS - 1));
        load.map_or(1.0, |load| load.correction(level, predicted))
    }

    /// Returns the target of this level at a pool for callers without a deadline, in seconds; infinite without a
    /// target.
    pub(crate) fn target_at(&self, pool: PoolId, level: u8, config: &WaitingRoomConfig) -> f64 {
        let target = self.busy_target(pool, config);
        let max_wait = config
            .max_wait
            .map_or(f64::INFINITY, |max| max.as_secs_f64());
        let idle = self.idle_for(level, config.has_flows(), config);
        let burst = match config.has_flows() {
            true => burst(idle / IDLE),
            false => for_silent(burst(idle / IDLE)),
        };
        burst_target(target, max_wait, burst, config)
    }
}
