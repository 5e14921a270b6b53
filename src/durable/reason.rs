//! The reasons that a store itself gives for the end of a request.

/// Its worker died, or was silent for too long.
pub const WORKER_LOST: &str = "worker_lost";
/// It was cancelled.
pub const REQUEST_CANCELED: &str = "request_canceled";
/// Its time was up.
pub const DEADLINE_EXCEEDED: &str = "deadline_exceeded";
/// The status of its response is 400 or above.
pub const ERROR_RESPONSE: &str = "error_response";
