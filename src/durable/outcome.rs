//! The end of an attempt.

use std::time::Duration;

use bytes::Bytes;

/// The end of an attempt, as its worker records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The inner service responded. The request has succeeded if `status` is below 400, and has failed otherwise.
    Responded {
        /// The HTTP status.
        status: u16,
        /// The response, in a form that the store does not look into.
        response: Bytes,
    },
    /// There is no response.
    Failed {
        /// The reason in a word, such as `attempt_timeout`.
        reason: String,
    },
    /// The request goes back into its queue, to be tried again.
    Retry {
        /// The time for which it may not begin.
        after: Duration,
        /// `false` if this attempt does not count.
        counts: bool,
    },
}
