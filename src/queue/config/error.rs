//! Errors in the configuration of a queue.

use crate::admit::{InvalidAdaptiveLimit, InvalidWaitingRoom};
use crate::http::InvalidRetryAfter;

/// A [`QueueConfig`](super::QueueConfig) that can't be used: which field, its value, and what is allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidQueueConfig {
    /// No request would ever be served.
    #[error("`concurrency` is 0: it must be at least 1, or \"inner\", or \"auto\"")]
    ZeroConcurrency,
    /// Not a name that a header can have.
    #[error(
        "`{field}` is {value:?}, which is no header name: use ASCII letters, digits and hyphens"
    )]
    HeaderName {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// The waiting room's configuration makes no sense.
    #[error(transparent)]
    WaitingRoom(#[from] InvalidWaitingRoom),
    /// The limit that adapts makes no sense.
    #[error(transparent)]
    Limit(#[from] InvalidAdaptiveLimit),
    /// A number of slots can't become the inner service's own, nor the other way round.
    #[error(
        "`concurrency` can't change between a number, or \"auto\", and \"inner\" while the service runs"
    )]
    ConcurrencyIsFixed,
    /// No request could wait for the inner service to be ready, and so none could use it.
    #[error(
        "`concurrency` is \"inner\", which needs a waiting room: set `enabled`, `max_size` and `max_wait_seconds` so that requests may wait"
    )]
    InnerNeedsRoom,
    /// Slots can be kept only where it is known how many there are.
    #[error(
        "`reserve` is set and `concurrency` is \"inner\", where no slots can be kept: leave one of them out"
    )]
    InnerKeepsNoSlots,
    /// An inner service can be shared only where one request at a time uses it.
    #[error("an inner service that can't be cloned needs `concurrency` to be \"inner\"")]
    CannotShare,
    /// An inner service that is shared must be the only one behind its waiting room.
    #[error(
        "this layer has an inner service already: one that can't be cloned needs a layer, and so a waiting room, of its own"
    )]
    NotAlone,
    /// `retry_after` contradicts itself.
    #[error(transparent)]
    RetryAfter(#[from] InvalidRetryAfter),
}
