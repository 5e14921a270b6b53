//! The core of every layer: the admission of a request through a gate, and the state of a layer.
//!
//! An [`Admission`] acquires a slot, waits for the inner service to be ready, calls it, and holds the slot until the
//! response's body ends. An [`AdmissionHandler`] has the parts that differ between layers: the ticket, the rejection, the
//! response. All services of one layer share a [`LayerState`]; a [`ReadyState`] is what a service's `poll_ready` reserves.

mod admission;
mod layer_state;
mod ready_state;
mod response;
mod served_call;
mod waiting;

pub(crate) use admission::{Admission, AdmissionHandler, ResponseOptions};
pub(crate) use layer_state::{LayerState, Prepare, Settings};
pub(crate) use ready_state::ReadyState;
pub(crate) use response::{hold_in_body, insert_waited};
