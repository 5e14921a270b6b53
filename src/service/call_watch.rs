//! A call of the inner service that is watched until its answer begins.

use std::time::Duration;

use super::adaptive_limit::MeasuredCall;
use super::served_call::ServedCall;
use crate::admit::Capacity;
use crate::gate::Permit;

/// The permit of a call, and what is to be told when its answer begins: of a request that waited, or in a layer with a
/// limit that adapts.
pub(super) struct CallWatch<C: Capacity> {
    pub(super) permit: Permit<C>,
    pub(super) waited: Duration,
    pub(super) served: Option<ServedCall<C>>,
    pub(super) measured: Option<MeasuredCall>,
}

impl<C: Capacity> CallWatch<C> {
    /// Whether nothing is to be told.
    pub(super) fn is_empty(&self) -> bool {
        self.waited.is_zero() && self.served.is_none() && self.measured.is_none()
    }

    /// The inner service has answered, with a response or an error.
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
