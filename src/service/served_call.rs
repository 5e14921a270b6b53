//! The call of the inner service for a request that waited, until its answer begins or its caller gives up.
//!
//! The waiting room learns from it how long requests are served, and how long callers wait.

use crate::admit::{Capacity, Served};
use crate::gate::Gate;

/// Dropped before it was [`answered`](Self::answered), it reports that the caller gave up; not if it is dropped by the
/// panic of the inner service.
pub(super) struct ServedCall<C: Capacity> {
    gate: Gate<C>,
    served: Option<Served>,
}

impl<C: Capacity> ServedCall<C> {
    pub(super) fn new(gate: &Gate<C>, served: Served) -> Self {
        Self {
            gate: gate.clone(),
            served: Some(served),
        }
    }

    /// The inner service has answered, with a response or an error.
    pub(super) fn answered(mut self) {
        if let Some(served) = self.served.take() {
            self.gate.on_answered(&served);
        }
    }
}

impl<C: Capacity> Drop for ServedCall<C> {
    fn drop(&mut self) {
        if let Some(served) = self.served.take()
            && !std::thread::panicking()
        {
            self.gate.on_abandoned(&served);
        }
    }
}
