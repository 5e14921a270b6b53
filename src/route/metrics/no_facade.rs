//! Without feature `metrics`, nobody is told.

use std::sync::Arc;
use std::time::Duration;

use super::RequestOutcome;
use crate::endpoints::{Decision, EndpointRef, Endpoints};

#[derive(Debug, Default)]
pub(crate) struct Meter {}

impl Meter {
    pub(crate) fn ended(
        &self,
        _: &Endpoints,
        _asked: Option<&Arc<str>>,
        _: Option<&Decision>,
        _: RequestOutcome,
    ) {
    }

    pub(crate) fn waited(&self, _: impl FnOnce() -> (String, Duration)) {}

    pub(crate) fn retried(&self, _: &EndpointRef) {}

    pub(crate) fn fell_back(&self, _: &Decision) {}

    pub(crate) fn health_changed(&self, _: &EndpointRef) {}
}
