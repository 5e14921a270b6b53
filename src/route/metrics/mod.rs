//! What a router does shows in no request's answer: that it waits longer every day, or that an endpoint
//! fails one time in ten.
//!
//! With feature `metrics`, a [`Metrics`] tells the `metrics` facade, and through it whichever recorder the
//! program has; without, it does nothing. No label is chosen by a client: a name that is not configured
//! is counted as `other`.

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
    /// Its answer was passed on to the end; with this status.
    Answered(StatusCode),
    /// Its answer broke off.
    Reset,
    /// Nobody served it; with this code.
    Rejected(&'static str),
    /// The inner service failed without an answer.
    Failed,
    /// Its client left.
    Cancelled,
}
