//! The metrics of one request: counted when it is dropped, however it ended.

use std::sync::Arc;

use super::metrics::RequestOutcome;
use super::shared::RouterShared;
use crate::endpoints::Decision;

/// Counts one request when it is dropped: a client that leaves early is counted, too.
#[derive(Debug)]
pub(super) struct RequestMetrics {
    pub(super) shared: Arc<RouterShared>,
    /// The name that was asked for, once it is known.
    pub(super) asked: Option<Arc<str>>,
    /// Where the request went last, once it is known.
    pub(super) decision: Option<Decision>,
    /// Whether an attempt failed. It counted against the endpoint then; no other endpoint is to blame.
    pub(super) has_failed: bool,
    pub(super) outcome: RequestOutcome,
}

impl RequestMetrics {
    pub(super) fn new(shared: Arc<RouterShared>) -> Self {
        Self {
            shared,
            asked: None,
            decision: None,
            has_failed: false,
            outcome: RequestOutcome::Cancelled,
        }
    }
}

impl Drop for RequestMetrics {
    fn drop(&mut self) {
        let decision = self.decision.as_ref();
        let (shared, asked) = (&self.shared, self.asked.as_ref());
        shared
            .metrics
            .ended(shared.endpoints(), asked, decision, self.outcome);
        shared.pass_probe_on(); // the request may have been a probe
    }
}
