//! What can be wrong with a configuration, in the words of its file.

use crate::admit::InvalidPriorityLevels;
use crate::http::InvalidRetryAfter;

/// A [`QueueConfig`](super::QueueConfig) that can't be used: which field, its value, and what is allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidQueueConfig {
    /// No request would ever be served.
    #[error("`concurrency` is 0: it must be at least 1, or \"inner\"")]
    NoConcurrency,
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
    /// The priority levels are not well defined.
    #[error(transparent)]
    PriorityLevels(#[from] InvalidPriorityLevels),
    /// Everyone would be promoted at once, and priorities would mean nothing.
    #[error("`promote_after_seconds` is 0: it must be above 0; leave it out to never promote")]
    NoTimeToPromotion,
    /// A tenant that would never have its turn.
    #[error("`tenant_weights` gives {tenant:?} the weight 0: a weight must be at least 1")]
    NoWeight {
        /// The tenant's name.
        tenant: String,
    },
    /// A number of slots can't become the inner service's own, nor the other way round.
    #[error("`concurrency` can't change between a number and \"inner\" while the service runs")]
    ConcurrencyIsFixed,
    /// Nobody could wait for the inner service, and so nobody could use it.
    #[error(
        "`concurrency` is \"inner\", which needs a waiting room: set `enabled`, `max_size` and `max_wait_seconds` so that requests may wait"
    )]
    NobodyInTurn,
    /// Only a queue whose requests take turns can share an inner service.
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
