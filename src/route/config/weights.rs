//! Checks what the strategy `smart` weighs.

use super::InvalidRouting;
use crate::endpoints::Weights;

/// Whether `weights` are shares of 100.
pub(super) fn validate(weights: Weights) -> Result<(), InvalidRouting> {
    let Weights {
        priority,
        load,
        latency,
    } = weights;
    let sum: u64 = [priority, load, latency].into_iter().map(u64::from).sum();
    if sum == 100 {
        return Ok(());
    }
    Err(InvalidRouting::Weights {
        priority,
        load,
        latency,
    })
}
