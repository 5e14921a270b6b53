//! Metrics of a router, for the `metrics` facade.
//!
//! With feature `metrics`, [`Metrics`] passes them to the recorder that the program has installed; without, it does
//! nothing. No label is chosen by a client: a name that is not configured is counted as `other`.

#[cfg(feature = "metrics")]
mod facade;
#[cfg(not(feature = "metrics"))]
#[path = "no_facade.rs"]
mod facade;

use http::StatusCode;

pub(super) use facade::Metrics;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// Its response was passed on to the end; with this status.
    Answered(StatusCode),
    /// The body of its response broke off.
    Reset,
    /// It was rejected; with this code.
    Rejected(&'static str),
    /// The inner service failed without a response.
    Failed,
    /// It was dropped before its response was over.
    Cancelled,
}
