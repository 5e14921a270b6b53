//! The ways in which an admitted request ends.

use http::StatusCode;

/// The end of a request that was admitted, as an [`Observer`](super::Observer) sees it. A status is that of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestEnd {
    /// The body of the response was read to its end.
    Complete(StatusCode),
    /// The body of the response failed.
    BodyFailed(StatusCode),
    /// The body of the response was dropped before its end, because the client left.
    BodyDropped(StatusCode),
    /// The inner service returned an error in place of a response. In a [status stream](crate::QueueLayer#status-while-waiting)
    /// that has begun, the client gets an event, and the end is `Complete` with the status 500.
    ServiceFailed,
    /// The response future was dropped before there was a response, because the client left or a layer around the queue
    /// timed out.
    Cancelled,
    /// The inner service panicked, before its response or in the body. Also a closure of the layer, such as `on_reject`.
    Panicked,
}

impl RequestEnd {
    /// Returns the status of the response. Returns `None` if there was no response, and for a panic.
    #[must_use]
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::Complete(status) | Self::BodyFailed(status) | Self::BodyDropped(status) => {
                Some(status)
            }
            Self::ServiceFailed | Self::Cancelled | Self::Panicked => None,
        }
    }
}
