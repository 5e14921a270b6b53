//! The head of an answer that comes in the body of a response, for the layers around a queue.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::response::Parts;

/// The head of the answer to a request that was told its position while it waited.
///
/// The response of such a request has this as an extension, because it began before the answer was there. The response
/// itself is always a 200 with a stream of events. A layer that logs keeps a clone of this, and reads it when the body
/// has ended. The head has the extensions that the response to a request without `x-queue-status` would have, such as
/// its [`QueueTime`](super::QueueTime).
///
/// ```
/// use http::Response;
/// use tower_triage::queue::DelayedHead;
///
/// /// The status that tells what came of a request, once the body of its response has ended.
/// fn status<B>(response: &Response<B>) -> Option<u16> {
///     match response.extensions().get::<DelayedHead>() {
///         None => Some(response.status().as_u16()),
///         Some(delayed) => Some(delayed.get()?.status.as_u16()),
///     }
/// }
/// assert_eq!(status(&Response::new(())), Some(200));
/// ```
#[derive(Debug, Clone, Default)]
pub struct DelayedHead(Arc<Delayed>);

#[derive(Debug, Default)]
struct Delayed {
    head: OnceLock<Parts>,
    /// The time that the request waited. It is set once the request has been passed to the inner service.
    waited: OnceLock<Duration>,
}

impl DelayedHead {
    /// Returns the head of the answer, or `None` until the answer is there. If it is `None` after the end of the body,
    /// the client left before the answer.
    #[must_use]
    pub fn get(&self) -> Option<&Parts> {
        self.0.head.get()
    }

    /// Sets the head. Later calls have no effect.
    pub(crate) fn set(&self, head: Parts) {
        _ = self.0.head.set(head); // a request has one answer
    }

    /// Returns the time that the request waited, or `None` until it has been passed to the inner service.
    pub(super) fn waited(&self) -> Option<Duration> {
        self.0.waited.get().copied()
    }

    /// Records that the request has been passed to the inner service. Later calls have no effect.
    pub(crate) fn set_waited(&self, waited: Duration) {
        _ = self.0.waited.set(waited);
    }
}
