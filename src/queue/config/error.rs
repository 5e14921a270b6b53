//! What can be wrong with a configuration, in the words of its file.

use crate::admit::InvalidLevels;
use crate::http::InvalidRetryAfter;

/// A [`QueueConfig`](super::QueueConfig) that can't be used: which field, its value, and what is allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
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
    Levels(#[from] InvalidLevels),
    /// Everyone would be promoted at once, and priorities would mean nothing.
    #[error("`promote_after_seconds` is 0: it must be above 0; leave it out to never promote")]
    NoTimeToPromotion,
    /// A tenant that would never have its turn.
    #[error("`tenant_weights` gives {tenant:?} the weight 0: a weight must be at least 1")]
    NoWeight {
        /// The tenant's name.
        tenant: String,
    },
    /// `retry_after` contradicts itself.
    #[error(transparent)]
    RetryAfter(#[from] InvalidRetryAfter),
}
