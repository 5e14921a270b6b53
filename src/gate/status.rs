//! What a gate reports of itself.

use std::time::Duration;

use crate::admit::RoomStats;

/// A gate at one instant.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GateStatus {
    /// How many wait.
    pub depth: usize,
    /// How many leases are out.
    pub running: usize,
    /// How many may be out.
    pub limit: usize,
    /// How many chairs there are.
    pub max_size: usize,
    /// How many were given a slot, whether they waited or not.
    pub served: u64,
    /// What became of those who could not pass at once.
    pub stats: RoomStats,
    /// How long the next arrival would probably wait, from the measured drain rate. `None` before anything
    /// is known.
    pub estimated_wait: Option<Duration>,
    /// Whether the gate is closed.
    pub closed: bool,
}
