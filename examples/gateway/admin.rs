//! The JSON of `/admin/state`.

use std::collections::BTreeMap;

use serde::Serialize;

/// State of the gateway at one moment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) queue: QueueState,
    pub(crate) endpoints: Vec<EndpointState>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct QueueState {
    /// Requests that are waiting.
    pub(crate) depth: usize,
    /// Requests that hold a slot.
    pub(crate) running: usize,
    /// Requests that got a slot since the start.
    pub(crate) served: u64,
    /// Requests since the start that were cancelled before they got a slot, because the client disconnected.
    pub(crate) cancelled: u64,
    /// Requests rejected since the start, by the `code` of the error.
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
    /// Moving average of the time to the response headers, in ms; 0 before the first response.
    pub(crate) first_byte_ms: f64,
    /// Moving average of the time to the end of the response body, in ms; 0 before the first response.
    pub(crate) total_ms: f64,
    pub(crate) models: Vec<String>,
}
