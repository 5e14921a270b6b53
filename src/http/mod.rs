//! The HTTP side of the crate, with tickets from headers, rejections as responses, and bodies that hold a permit.
//!
//! On the way in, [`HeaderClassifier`] reads a ticket from the headers of a request. On the way out, [`PermitBody`]
//! holds the slot until the body ends. A [`Rejection`] tells the client, as HTTP or as gRPC, why its request was not
//! served, and [`RetryAfter`] computes the time of the retry.

mod body;
mod body_fault;
mod body_memory;
mod cached;
mod classify;
mod drain;
mod error_code;
mod hold;
#[cfg(feature = "route")]
mod hop_by_hop;
mod idle_timer;
mod memory_waiters;
mod rejection;
mod render;
mod retry_after;
mod short_body;
mod sse;
mod timing;

pub use body::PermitBody;
pub use body_fault::BodyFault;
pub use body_memory::{BodyMemory, MemoryShare};
pub(crate) use cached::at_once;
pub use classify::{HeaderClassifier, wants_stream};
pub use drain::drain;
#[cfg(feature = "route")]
pub(crate) use drain::{EXCESS_LIMIT, drain_frames};
pub use error_code::ErrorCode;
pub use hold::HoldError;
pub(crate) use hold::{CallHold, HoldLimits, LimitedHold};
#[cfg(any(feature = "client", all(test, feature = "route")))]
pub(crate) use hop_by_hop::HOP_BY_HOP;
#[cfg(feature = "client")]
pub(crate) use hop_by_hop::hop_by_hop_index;
#[cfg(feature = "route")]
pub(crate) use hop_by_hop::is_hop_by_hop;
#[cfg(feature = "client")]
pub(crate) use hop_by_hop::named_by_connection;
pub(crate) use idle_timer::IdleTimer;
pub(crate) use memory_waiters::RoomWait;
pub use rejection::{Rejection, ToRejection};
pub(crate) use rejection::{is_overload, rejection, streaming_not_queued};
pub(crate) use render::grpc_content_type;
pub use retry_after::{InvalidRetryAfter, RetryAfter, RetryAfterMode};
pub(crate) use short_body::read_short;
#[cfg(feature = "route")]
pub(crate) use sse::names_event_stream;
pub(crate) use sse::{
    EVENT_STREAM, LineEvents, error_event, is_event_stream, is_json, queue_comment,
    with_retry_after,
};
pub(crate) use timing::insert_server_timing;
