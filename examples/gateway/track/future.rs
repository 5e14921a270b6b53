//! The future of a tracked request.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::BoxError;
use bytes::Bytes;
use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;

use super::{Tracked, TrackedBody};

pin_project! {
    /// The future of a tracked request's response. Dropping it ends the request, whose log line says that the client left.
    pub(crate) struct TrackedFuture<F> {
        // Dropped first, so that the request's work has ended by the time of its log line.
        #[pin]
        response: F,
        // `None` once the response is there.
        tracked: Option<Box<Tracked>>,
    }
}

impl<F> TrackedFuture<F> {
    pub(crate) fn new(response: F, tracked: Box<Tracked>) -> Self {
        let tracked = Some(tracked);
        Self { response, tracked }
    }
}

impl<F, B> Future for TrackedFuture<F>
where
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Output = Response<TrackedBody<B>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Some(Tracked { record, span, .. }) = this.tracked.as_deref() else {
            answered();
        };
        let response = match record.is_cancelled() {
            true => None,
            false => match span.in_scope(|| this.response.poll(cx)) {
                Poll::Ready(response) => Some(response),
                Poll::Pending if record.poll_cancelled(cx) => None,
                Poll::Pending => return Poll::Pending,
            },
        };
        let Some(tracked) = this.tracked.take() else {
            answered();
        };
        Poll::Ready(match response {
            Some(response) => TrackedBody::wrap(response, tracked),
            // The server drops the future with the response in hand, which takes the request out of the queue or closes
            // the connection to its endpoint.
            None => tracked.cancelled(),
        })
    }
}

/// Panics because the future was polled after it had resolved.
fn answered() -> ! {
    panic!("response future polled after it was answered")
}
