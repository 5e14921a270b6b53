//! The JSON of `/admin/state`.

use std::collections::BTreeMap;

use serde::Serialize;
use tower_triage::admit::AdaptiveLimit;

/// State of the gateway at one moment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Snapshot {
    /// The version of this form. It changes when a field is renamed or removed, or gets another meaning.
    pub(crate) schema: u32,
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
    /// The same by priority level, highest first.
    pub(crate) levels: Vec<LevelState>,
}

/// One priority level of the queue.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct LevelState {
    pub(crate) name: String,
    /// Requests that are waiting.
    pub(crate) waiting: usize,
    /// Requests that were refused since the start, or waited in vain.
    pub(crate) refused: u64,
    /// For how long one more request would wait, in the longest queue; null while that is not known.
    pub(crate) estimated_wait_seconds: Option<f64>,
    /// The wait from which on requests are refused as `overloaded`; null without one.
    pub(crate) target_wait_seconds: Option<f64>,
    /// Slots that are kept for this level and those above.
    pub(crate) reserved: usize,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct EndpointState {
    pub(crate) name: String,
    pub(crate) in_flight: u32,
    /// Slots now.
    pub(crate) limit: u32,
    /// How the limit is found, if it adapts; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) adaptive: Option<AdaptiveLimit>,
    pub(crate) healthy: bool,
    pub(crate) draining: bool,
    pub(crate) priority: u32,
    /// Moving average of the time to the response headers, in ms; 0 before the first response.
    pub(crate) first_byte_ms: f64,
    /// Moving average of the time to the end of the response body, in ms; 0 before the first response.
    pub(crate) total_ms: f64,
    pub(crate) models: Vec<String>,
}
