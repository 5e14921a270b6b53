//! The core of every layer: the admission of a request through a gate, and the state of a layer.
//!
//! An [`Admission`] acquires a slot, waits for the inner service to be ready, calls it, and holds the slot until the
//! response's body ends. An [`AdmissionHandler`] has the parts that differ between layers: the ticket, the rejection
//! and the response. A [`StatusStream`] is the body of a response that begins while its request waits. All services of
//! one layer share a [`LayerState`], and each service keeps the reservation of its `poll_ready` in a [`ReadyState`].

mod adaptive_limit;
mod admission;
mod call_watch;
mod exempt_call;
mod late_answer;
mod layer_state;
mod queue_status;
mod ready_state;
mod response;
mod served_call;
mod status_stream;
mod waiting;

pub(crate) use adaptive_limit::MeasuredCall;
pub(crate) use admission::{
    Admission, AdmissionHandler, HoldPermit, JustQueued, Progress, ResponseOptions,
};
pub(crate) use layer_state::{LayerState, Prepare, Settings};
pub(crate) use queue_status::{ask_for_identity, asks_for_status, status_response};
pub(crate) use ready_state::{Prepared, ReadyState};
pub(crate) use response::insert_timing;
#[cfg(feature = "route")]
pub(crate) use response::{hold_in_body, insert_waited};
#[cfg(feature = "route")]
pub(crate) use status_stream::StatusWriter;
pub(crate) use status_stream::{PendingAnswer, StatusStream};
