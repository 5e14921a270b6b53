//! The time for which a request waited, for the layers around a queue.

use std::time::Duration;

/// The time that a request waited for its slot, and then for the inner service to be ready.
///
/// Responses to requests that waited for 1 ms or longer, served or rejected, have this as an extension. With
/// [`queue_time_extension`](crate::QueueLayer::queue_time_extension), the requests have it, too, for their handlers.
///
/// A rejection also has its [`RejectReason`](crate::RejectReason) among its extensions. A rejection of a `RouteLayer`
/// has a `RejectReason<RouteError>`.
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
