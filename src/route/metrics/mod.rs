//! The metrics of a router, for the `metrics` facade.
//!
//! With the feature `metrics`, [`Metrics`] passes them to the recorder that the program has installed. Without the
//! feature it does nothing. Clients cannot choose labels: a name that is not configured is counted as `other`.

#[cfg(feature = "metrics")]
mod facade;
#[cfg(feature = "metrics")]
mod kept;

use http::StatusCode;

#[cfg(feature = "metrics")]
pub(super) use facade::Metrics;

/// The metrics without the feature, which count nothing, so that callers need not check the feature.
#[cfg(not(feature = "metrics"))]
#[derive(Debug, Default)]
pub(super) struct Metrics {}

#[cfg(not(feature = "metrics"))]
impl Metrics {
    pub(super) fn ended(
        &self,
        _: &crate::endpoints::Endpoints,
        _asked: Option<&std::sync::Arc<str>>,
        _: Option<&crate::endpoints::Decision>,
        _: RequestOutcome,
    ) {
    }

    pub(super) fn waited(
        &self,
        _: &crate::admit::PriorityLevels,
        _: crate::admit::Priority,
        _: std::time::Duration,
    ) {
    }

    pub(super) fn retried(&self, _: &crate::endpoints::EndpointRef) {}

    pub(super) fn refused(&self, _: &crate::endpoints::EndpointRef) {}

    pub(super) fn health_changed(&self, _: &crate::endpoints::EndpointRef) {}
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// The response was passed on to its end, with this status.
    Answered(StatusCode),
    /// The body of the response broke off.
    Reset,
    /// The response was passed on to its end, and is an error or has one in it although its status says success.
    ErrorInStream,
    /// The request was rejected with this code.
    Rejected(&'static str),
    /// The inner service failed without a response.
    Failed,
    /// The request was dropped before its response was over.
    Cancelled,
}
