//! What this layer shares with `QueueLayer`: the way through a gate, the state of a layer, and a reserved place.

pub(super) use crate::admission::{Admission, Desk as AdmissionHandler, Tail};
pub(super) use crate::queue::common::Common as LayerState;
pub(super) use crate::queue::protocol::pass_on;
pub(super) use crate::queue::seat::Seat as ReadyState;
pub(super) use crate::queue::{InvalidQueueConfig, QueueConfig};

use crate::admission::Visit as PendingCall;

/// A request that is to be passed to `inner`, with what answers it if it is not.
pub(super) fn pending_call<S, Req, H>(
    handler: H,
    inner: S,
    request: Req,
) -> PendingCall<S, Req, H> {
    PendingCall {
        desk: handler,
        inner,
        request,
    }
}
