//! What is predicted of arrivals at a level, for reports: it decides nothing, and changes nothing.

use super::{MAX_POOLS, Overload, burst_target, busy_target};
use crate::admit::{PoolId, WaitingRoomConfig};

impl Overload {
    /// What a predicted wait of this level has to be multiplied by.
    pub(crate) fn correction(&self, PoolId(pool): PoolId, level: u8, predicted: f64) -> f64 {
        let load = self.pools.get((pool as usize).min(MAX_POOLS - 1));
        load.map_or(1.0, |load| load.correction(level, predicted))
    }

    /// The target of this level for callers with this patience, in seconds, that is not told; infinite without one.
    pub(crate) fn target_at(&self, level: u8, patience: f64, config: &WaitingRoomConfig) -> f64 {
        let target = busy_target(config, patience);
        let longest = patience.max(2.0 * target);
        let idle = self.idle_for(level, config.has_flows(), config);
        burst_target(target, longest, idle)
    }
}
