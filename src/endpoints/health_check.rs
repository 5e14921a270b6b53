//! The configuration of an endpoint's health checks. The code that runs the checks is in `upstream`.

use std::time::Duration;

use http::uri::PathAndQuery;

use crate::setters::setters;

/// The settings of an endpoint's health check.
///
/// A check is a `GET` on a connection of its own, with the endpoint's own headers. It passes if a response with a
/// status of 2xx arrives in time. At the default path, a status of 401, 403, 404 or 405 and a redirect pass, too: an
/// endpoint may lack such a page, or hide it, but its response shows that it is there. The first check decides at once.
///
/// A check is ignored if this process has run out of file descriptors, or if it was late and the endpoint has meanwhile
/// answered a request or sent a part of a response.
///
/// [`Registry::new`](super::Registry::new) rejects a check that could not be sent or could not decide.
///
/// ```
/// use std::time::Duration;
/// use tower_triage::endpoints::{Endpoint, HealthCheck};
///
/// let endpoint = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"))
///     .health(HealthCheck::new("/v1/models").interval(Duration::from_secs(2)));
/// assert_eq!(endpoint.health.unwrap().unhealthy_after, 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthCheck {
    /// The path of the check after the endpoint's base path. It begins with `/` and may have a query. Default
    /// `/health`.
    pub path: String,
    /// The time from the start of a check to the start of the next one, which varies by a tenth at random. It must be
    /// above zero. Default 10 s. A check that takes longer delays the next one.
    pub interval: Duration,
    /// The time that a check may take, from connecting to the end of the response. It must be above zero. Default 5 s.
    pub timeout: Duration,
    /// The number of failed checks in a row that take a healthy endpoint out of service. It must be at least 1. Default
    /// 3.
    pub unhealthy_after: u32,
    /// The number of passed checks in a row that bring an endpoint back into service. It must be at least 1. Default 2.
    pub healthy_after: u32,
}

pub(crate) const DEFAULT_PATH: &str = "/health";

impl HealthCheck {
    /// Makes a check of `path` every 10 s.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            unhealthy_after: 3,
            healthy_after: 2,
        }
    }

    setters! {
        interval: Duration,
        timeout: Duration,
        unhealthy_after: u32,
        healthy_after: u32,
    }

    /// Returns the part of the settings that is invalid, if there is one.
    pub(super) fn problem(&self) -> Option<&'static str> {
        if !self.path.starts_with('/') || self.path.parse::<PathAndQuery>().is_err() {
            Some("a `path` that does not begin with / or has characters in it that no path has")
        } else if self.interval.is_zero() {
            Some("an `interval` of 0: give it some time, or leave the check out")
        } else if self.timeout.is_zero() {
            Some("a `timeout` of 0, in which no endpoint can answer")
        } else if self.unhealthy_after == 0 || self.healthy_after == 0 {
            Some("an `unhealthy_after` or a `healthy_after` of 0: give it at least 1 check")
        } else {
            None
        }
    }
}

impl Default for HealthCheck {
    /// Makes a check of `/health` every 10 s.
    fn default() -> Self {
        Self::new(DEFAULT_PATH)
    }
}
