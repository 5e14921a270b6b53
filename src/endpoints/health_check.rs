//! The configuration of an endpoint's health checks. The checks themselves are in `upstream`.

use std::time::Duration;

use http::uri::PathAndQuery;

/// How an endpoint's health is checked.
///
/// A check is a `GET`, on a connection of its own, with the endpoint's own headers. It passes if a response of 2xx ends in
/// time, of which no more than about 8 KiB are read, and fails otherwise: another status, no connection, a response that breaks off or is late. The first check
/// decides at once. At the default path, 401, 403, 404, 405 and redirects pass, too: an endpoint need not have such a
/// page, or not for all clients, but it is there to say so.
///
/// A check does not count if it could not be made because this process has no file descriptors left, or if it was late and
/// the endpoint has meanwhile answered a request or sent a part of a response.
///
/// [`Registry::new`](super::Registry::new) refuses a check that could never be sent or never decide.
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
    /// The path of the check, after the endpoint's base path. It begins with `/` and may have a query. Default
    /// `/health`.
    pub path: String,
    /// How long from the start of a check to that of the next, give or take a tenth by chance. A check that
    /// takes longer delays the next: there is never more than one at a time. Above zero; default 10 s.
    pub interval: Duration,
    /// How long a check may take, from connecting to the end of the response. Above zero; default 5 s.
    pub timeout: Duration,
    /// How many failed checks in a row take a healthy endpoint out of service. At least 1; default 3.
    pub unhealthy_after: u32,
    /// How many passed checks in a row bring it back. At least 1; default 2.
    pub healthy_after: u32,
}

pub(crate) const DEFAULT_PATH: &str = "/health";

impl HealthCheck {
    /// A check of `path` every 10 s.
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

    /// How long from the start of a check to that of the next, give or take a tenth.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// How long a check may take, from connecting to the end of the response.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// How many failed checks in a row take an endpoint out of service.
    #[must_use]
    pub fn unhealthy_after(mut self, checks: u32) -> Self {
        self.unhealthy_after = checks;
        self
    }

    /// How many passed checks in a row bring it back.
    #[must_use]
    pub fn healthy_after(mut self, checks: u32) -> Self {
        self.healthy_after = checks;
        self
    }

    /// What is wrong with it, if anything is.
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
    /// A check of `/health` every 10 s.
    fn default() -> Self {
        Self::new(DEFAULT_PATH)
    }
}
