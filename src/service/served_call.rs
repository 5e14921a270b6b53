//! The call of the inner service for a request that waited, until its answer begins. From such calls, the waiting room
//! learns the time that it takes to serve a request.

use crate::admit::{Capacity, ServiceSample};
use crate::gate::Gate;

/// A call whose length is reported once it is [`answered`](Self::answered). A call that is dropped before that is not
/// reported.
pub(super) struct ServedCall<C: Capacity> {
    gate: Gate<C>,
    sample: ServiceSample,
}

impl<C: Capacity> ServedCall<C> {
    pub(super) fn new(gate: &Gate<C>, sample: ServiceSample) -> Self {
        let gate = gate.clone();
        Self { gate, sample }
    }

    /// Reports that the inner service has answered, with a response or an error.
    pub(super) fn answered(self) {
        self.gate.on_answered(&self.sample);
    }
}
