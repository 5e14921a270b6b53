//! A request counted at the end of a function is not counted when its client leaves before.
//!
//! A [`Tally`] goes with the request and counts it when it is dropped, as what it came to by then.

use std::sync::Arc;

use super::metrics::RequestOutcome;
use super::shared::Desk;
use crate::endpoints::Decision;

/// RoomStats one request, once.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) desk: Arc<Desk>,
    /// The name that was asked for, while nothing is decided.
    pub(super) asked: Option<Arc<str>>,
    /// Where it went last, once that is known.
    pub(super) decision: Option<Decision>,
    /// Whether an endpoint has failed it. That counted against the first one, and counts against no other.
    pub(super) has_failed: bool,
    pub(super) outcome: RequestOutcome,
}

impl Tally {
    /// A request has come.
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self {
            desk,
            asked: None,
            decision: None,
            has_failed: false,
            outcome: RequestOutcome::Cancelled,
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let decision = self.decision.as_ref();
        let (desk, asked) = (&self.desk, self.asked.as_ref());
        desk.meter
            .ended(desk.endpoints(), asked, decision, self.outcome);
        // This request may have been a trial.
        desk.pass_probe_on();
    }
}
