//! A call of the inner service that is watched until its answer begins.

use std::time::Duration;

use super::adaptive_limit::MeasuredCall;
use super::served_call::ServedCall;
use crate::admit::Capacity;
use crate::gate::Permit;

/// The permit of a call, and the reports to make when its answer begins. `served` is for a request that waited, and
/// `measured` for a layer with a limit that adapts.
pub(super) struct CallWatch<C: Capacity> {
    pub(super) permit: Permit<C>,
    pub(super) waited: Duration,
    pub(super) served: Option<ServedCall<C>>,
    pub(super) measured: Option<MeasuredCall>,
}

impl<C: Capacity> CallWatch<C> {
    /// Returns `true` if both reports are absent.
    pub(super) fn is_empty(&self) -> bool {
        self.waited.is_zero() && self.served.is_none() && self.measured.is_none()
    }

    /// Reports that the inner service has answered, with a response or an error, and returns the permit.
    pub(super) fn answered(self, is_overloaded: impl FnOnce() -> bool) -> Permit<C> {
        if let Some(served) = self.served {
            served.answered();
        }
        if let Some(measured) = self.measured {
            measured.answered(is_overloaded());
        }
        self.permit
    }
}
