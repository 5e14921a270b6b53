//! The outcome of an attempt.

use std::time::Duration;

use bytes::Bytes;

/// The outcome of an attempt, as its worker records it in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The inner service responded. The request succeeds with a `status` below 400 and fails with any other.
    Responded {
        /// The HTTP status of the response.
        status: u16,
        /// The encoded response, which the store keeps without looking into it.
        response: Bytes,
    },
    /// The attempt ended without a response, so the request fails.
    Failed {
        /// The reason of the failure in one word, such as `attempt_timeout`.
        reason: String,
    },
    /// The request goes back into its queue for another attempt.
    Retry {
        /// The time before the request may begin again.
        after: Duration,
        /// `true` if this attempt counts towards the bound on attempts.
        counts: bool,
    },
}
