//! What an operator sees: `/admin/state` as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

/// The gateway at one moment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) queue: QueueState,
    pub(crate) endpoints: Vec<EndpointState>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct QueueState {
    /// How many requests wait.
    pub(crate) depth: usize,
    /// How many are being served.
    pub(crate) running: usize,
    /// How many were given a slot since the start.
    pub(crate) served: u64,
    /// How many left before they were answered since the start.
    pub(crate) cancelled: u64,
    /// How many were turned away since the start, by the `code` they were told.
    pub(crate) rejected: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct EndpointState {
    pub(crate) name: String,
    pub(crate) in_flight: u32,
    pub(crate) limit: u32,
    pub(crate) healthy: bool,
    pub(crate) draining: bool,
    pub(crate) priority: u32,
    /// How long the heads of its answers took of late, on average; 0 before the first.
    pub(crate) first_byte_ms: f64,
    /// The same for whole answers.
    pub(crate) total_ms: f64,
    pub(crate) models: Vec<String>,
}
