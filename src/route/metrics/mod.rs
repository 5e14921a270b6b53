//! The metrics of a router, for the `metrics` facade.
//!
//! With the feature `metrics`, [`Metrics`] passes them to the recorder that the program has installed. Without the
//! feature it does nothing. Clients cannot choose labels: a name that is not configured is counted as `other`.

#[cfg(feature = "metrics")]
mod facade;
#[cfg(not(feature = "metrics"))]
#[path = "no_facade.rs"]
mod facade;

use http::StatusCode;

pub(super) use facade::Metrics;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// The response was passed on to its end, with this status.
    Answered(StatusCode),
    /// The body of the response broke off.
    Reset,
    /// The request was rejected with this code.
    Rejected(&'static str),
    /// The inner service failed without a response.
    Failed,
    /// The request was dropped before its response was over.
    Cancelled,
}
