//! The time for which a request waited, for the layers around a queue.

use std::time::Duration;

/// The time that a request waited, for its slot and then for the inner service to be ready.
///
/// It is an extension of requests with [`queue_time_extension`](crate::QueueLayer::queue_time_extension), for their handlers,
/// and of responses with [`QueueResponseBody::with_extensions`](super::QueueResponseBody::with_extensions), for the layers around
/// a queue. The responses of a `RouteLayer` have it if the request waited for 1 ms or longer.
///
/// A rejection has its [`RejectReason`](crate::RejectReason) beside it, that of a `RouteLayer` a
/// `RejectReason<RouteError>`.
///
/// ```
/// use http::Response;
/// use tower_triage::RejectReason;
/// use tower_triage::queue::QueueTime;
///
/// /// What a layer around the queue may log.
/// fn describe<B>(response: &Response<B>) -> String {
///     let reason = response.extensions().get::<RejectReason>();
///     let waited = response.extensions().get::<QueueTime>();
///     match (reason, waited) {
///         (Some(reason), _) => format!("rejected: {reason}"),
///         (None, Some(QueueTime(waited))) => format!("served after {waited:?}"),
///         (None, None) => "served at once".to_owned(),
///     }
/// }
/// assert_eq!(describe(&Response::new(())), "served at once");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueTime(pub Duration);
