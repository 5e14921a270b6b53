//! The reasons that a store itself gives for the end of a request, each as the word that callers see.

/// The reason of a request that failed because its worker died or was silent for too long.
pub const WORKER_LOST: &str = "worker_lost";
/// The reason of a request that its caller or an operator cancelled.
pub const REQUEST_CANCELED: &str = "request_canceled";
/// The reason of a request that had not ended at its deadline.
pub const DEADLINE_EXCEEDED: &str = "deadline_exceeded";
/// The reason of a request that failed with a response status of 400 or above.
pub const ERROR_RESPONSE: &str = "error_response";
