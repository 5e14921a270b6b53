//! What a gate reports of itself.

use std::time::Duration;

use crate::admit::RoomStats;

/// A gate at one instant.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GateStatus {
    /// How many requests wait.
    pub depth: usize,
    /// How many leases are out.
    pub running: usize,
    /// How many may be out.
    pub limit: usize,
    /// How many may wait.
    pub max_size: usize,
    /// How many requests were given a slot, whether they waited or not.
    pub served: u64,
    /// What became of the requests that found no slot free.
    pub stats: RoomStats,
    /// How long the next arrival would probably wait, from the measured departure rate. `None` before anything
    /// is known.
    pub estimated_wait: Option<Duration>,
    /// Whether the gate is closed.
    pub closed: bool,
}
