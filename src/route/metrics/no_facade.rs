//! The metrics of a router without the feature `metrics`. They count nothing, so that callers need not check the
//! feature.

use std::sync::Arc;
use std::time::Duration;

use super::RequestOutcome;
use crate::endpoints::{Decision, EndpointRef, Endpoints};

#[derive(Debug, Default)]
pub(in crate::route) struct Metrics {}

impl Metrics {
    pub(in crate::route) fn ended(
        &self,
        _: &Endpoints,
        _asked: Option<&Arc<str>>,
        _: Option<&Decision>,
        _: RequestOutcome,
    ) {
    }

    pub(in crate::route) fn waited(&self, _: impl FnOnce() -> (String, Duration)) {}

    pub(in crate::route) fn retried(&self, _: &EndpointRef) {}

    pub(in crate::route) fn health_changed(&self, _: &EndpointRef) {}
}
