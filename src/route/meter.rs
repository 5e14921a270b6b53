//! What is counted of a router's work, for whoever watches it.

use std::time::Duration;

use super::{Decision, EndpointRef};

/// Tells the `metrics` facade what happens.
#[derive(Debug, Default)]
pub(super) struct Meter;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its answer was passed on to the end; with this status.
    Answered(http::StatusCode),
    /// Its answer broke off.
    BrokeOff,
    /// Nobody served it; with this code.
    Rejected(&'static str),
    /// The inner service failed without an answer.
    Failed,
    /// Its client left.
    Cancelled,
}

impl Meter {
    pub(super) fn ended(&self, _asked: Option<&str>, _decision: Option<&Decision>, _: Outcome) {}

    pub(super) fn waited(&self, _priority: &str, _waited: Duration) {}

    pub(super) fn retried(&self, _endpoint: &EndpointRef) {}

    pub(super) fn fell_back(&self, _decision: &Decision) {}

    pub(super) fn health_changed(&self, _endpoint: &EndpointRef) {}
}
