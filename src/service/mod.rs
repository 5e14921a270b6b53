//! What every layer shares: one request's way through a gate, and the state of a layer.
//!
//! [`Admission`] is a request's way: acquire a slot, wait for the inner service to be ready, call it, hold the slot
//! until the response's body ends. An [`AdmissionHandler`] is what differs from layer to layer: the ticket, the
//! rejection, the response. [`LayerState`] is what all services of one layer share, and [`ReadyState`] what a
//! service's `poll_ready` reserves.

mod admission;
mod layer_state;
mod ready_state;
mod response;
mod waiting;

pub(crate) use admission::{Admission, AdmissionHandler, ResponseOptions};
pub(crate) use layer_state::{LayerState, Settings};
pub(crate) use ready_state::ReadyState;
pub(crate) use response::{hold_in_body, insert_waited};
