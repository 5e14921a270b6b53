//! Errors in the configuration of a queue.

use crate::admit::{InvalidAdaptiveLimit, InvalidWaitingRoom};
use crate::http::InvalidRetryAfter;

/// A reason for which a [`QueueConfig`](super::QueueConfig) can't be used. The message has the field, its value and the
/// allowed values.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidQueueConfig {
    /// The value cannot be the name of a header.
    #[error(
        "`{field}` is {value:?}, which is no header name: use ASCII letters, digits and hyphens"
    )]
    HeaderName {
        /// The field with the wrong name.
        field: &'static str,
        /// The value of the field.
        value: String,
    },
    /// The configuration of the waiting room is invalid.
    #[error(transparent)]
    WaitingRoom(#[from] InvalidWaitingRoom),
    /// The configuration of the limit that adapts is invalid.
    #[error(transparent)]
    Limit(#[from] InvalidAdaptiveLimit),
    /// The concurrency would change between slots of the layer's own and slots of the inner service.
    #[error(
        "`concurrency` can't change between a number, or \"auto\", and \"inner\" while the service runs"
    )]
    ConcurrencyIsFixed,
    /// Requests have to wait for the inner service to be ready, but the configuration forbids waiting.
    #[error(
        "`concurrency` is \"inner\", which needs a waiting room: set `enabled`, `overflow`, `max_size` and `max_wait_seconds` so that requests may wait"
    )]
    InnerNeedsRoom,
    /// Slots are reserved while their number is unknown.
    #[error(
        "`reserve` is set and `concurrency` is \"inner\", where no slots can be kept: leave one of them out"
    )]
    InnerKeepsNoSlots,
    /// An inner service can be shared only if one request at a time uses it.
    #[error("an inner service that can't be cloned needs `concurrency` to be \"inner\"")]
    CannotShare,
    /// An inner service that is shared must be the only one behind its waiting room.
    #[error(
        "this layer has an inner service or exempts requests: an inner service that can't be cloned needs a layer, and so a waiting room, of its own, without exemptions"
    )]
    NotAlone,
    /// A limit on the time of a request is zero, so that no request could be served.
    #[error("`{field}` is 0: it must be a time above 0, or absent for no limit")]
    NoTime {
        /// The field with the wrong value.
        field: &'static str,
    },
    /// The settings in `retry_after` contradict each other.
    #[error(transparent)]
    RetryAfter(#[from] InvalidRetryAfter),
    /// Clients do not take the status for overload.
    #[error("`overload_status` is {0}: it must be 503 or 429")]
    OverloadStatus(u16),
}
