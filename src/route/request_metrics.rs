//! The metrics of one request, which is counted when they are dropped, on every outcome.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::HeaderMap;

use super::RouteObserver;
use super::metrics::RequestOutcome;
use super::response_body::Routed;
use super::shared::RouterShared;
use crate::admit::{RejectReason, Tenant};
use crate::endpoints::{Decision, RouteError};
use crate::http::{PermitBody, wants_stream};

/// A guard that counts one request when it is dropped, so that a client that leaves early is counted, too.
#[derive(Debug)]
pub(super) struct RequestMetrics {
    pub(super) shared: Arc<RouterShared>,
    /// The observer of the request, if a layer in front has set one.
    pub(super) observer: Option<Arc<dyn RouteObserver>>,
    /// The name that the request asks for. `None` until the name is known.
    pub(super) asked: Option<Arc<str>>,
    /// `true` if the body of the request asks for a stream.
    pub(super) wants_stream: bool,
    /// The last decision for the request. `None` until there is one.
    pub(super) decision: Option<Decision>,
    /// `true` after an attempt failed. That failure counted against its endpoint, and later failures count against no
    /// other endpoint, because the request may be at fault.
    pub(super) has_failed: bool,
    /// The tenant of the request, once it is needed.
    pub(super) tenant: Tenant,
    pub(super) outcome: RequestOutcome,
}

impl RequestMetrics {
    pub(super) fn new(shared: Arc<RouterShared>, observer: Option<Arc<dyn RouteObserver>>) -> Self {
        Self {
            shared,
            observer,
            asked: None,
            wants_stream: false,
            decision: None,
            has_failed: false,
            tenant: Tenant::NONE,
            outcome: RequestOutcome::Cancelled,
        }
    }

    /// Rejects the request, counts the rejection and returns the response for it.
    pub(super) fn reject<R>(
        mut self,
        headers: &HeaderMap,
        why: &RejectReason<RouteError>,
        waited: Duration,
    ) -> Routed<R> {
        let state = &self.shared.state;
        let wants_stream = || self.wants_stream || wants_stream(headers);
        let rejection = state.rejection(why, wants_stream, || state.gate.estimated_wait());
        tracing::debug!(reason = %why, ?waited, "request rejected");
        let code = rejection.code();
        let rejected = self.shared.rejected.lock();
        let mut rejected = rejected.unwrap_or_else(PoisonError::into_inner);
        *rejected.entry(code).or_default() += 1;
        drop(rejected);
        let mut response = state.write_rejection(rejection, headers, waited);
        response.extensions_mut().insert(why.clone());
        self.outcome = RequestOutcome::Rejected(code);
        response.map(PermitBody::rejection)
    }
}

impl Drop for RequestMetrics {
    fn drop(&mut self) {
        let decision = self.decision.as_ref();
        let (shared, asked) = (&self.shared, self.asked.as_ref());
        shared
            .metrics
            .ended(shared.endpoints(), asked, decision, self.outcome);
        shared.pass_probe_on(); // if the request was a probe, a waiter may be the next one
    }
}
