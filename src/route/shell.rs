//! What this layer shares with `QueueLayer`: the way through a gate, the state of a layer, and a reserved place.

pub(super) use crate::admission::{Admission, Desk as AdmissionHandler, Tail, Visit};
pub(super) use crate::queue::common::Common as LayerState;
pub(super) use crate::queue::protocol::pass_on;
pub(super) use crate::queue::seat::Seat as ReadyState;
pub(super) use crate::queue::{InvalidQueueConfig, QueueConfig};
