//! The body of a tracked request's response.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::BoxError;
use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_triage::gate::PermitBody;

use super::Tracked;
use crate::log::RequestEnd;

pin_project! {
    /// A response body that counts its bytes and knows how it ends.
    pub(crate) struct TrackedBody<B> {
        // Dropped first, so that the request's work has ended by the time of its log line.
        #[pin]
        body: PermitBody<B, ()>,
        // `None` once the body is over.
        tracked: Option<Box<Tracked>>,
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> TrackedBody<B> {
    pub(super) fn wrap(mut response: Response<B>, mut tracked: Box<Tracked>) -> Response<Self> {
        tracked.answered(&mut response);
        response.map(|body| Self::new(PermitBody::new(body, None), tracked))
    }

    /// Wraps the response to a request whose tracking ends here.
    pub(super) fn wrap_last(mut response: Response<Bytes>, mut tracked: Tracked) -> Response<Self> {
        tracked.answered(&mut response);
        tracked.record.count(response.body().len());
        response.map(|bytes| Self {
            body: PermitBody::rejection(bytes),
            tracked: None,
        })
    }

    fn new(body: PermitBody<B, ()>, tracked: Box<Tracked>) -> Self {
        let mut tracked = Some(tracked);
        if body.is_end_stream() {
            end(&mut tracked, RequestEnd::Complete);
        }
        Self { body, tracked }
    }
}

fn end(tracked: &mut Option<Box<Tracked>>, end: RequestEnd) {
    if let Some(mut tracked) = tracked.take() {
        tracked.end = end;
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut this = self.project();
        let Some(tracked) = this.tracked else {
            return this.body.poll_frame(cx).map_err(Into::into);
        };
        if !tracked.record.is_cancelled()
            && let Poll::Ready(frame) = tracked.span.in_scope(|| this.body.as_mut().poll_frame(cx))
        {
            let data = frame.as_ref().and_then(|it| it.as_ref().ok()?.data_ref());
            if let Some(data) = data {
                tracked.record.count(data.len());
                if tracked.timing.awaits_first(data) && tracked.is_answer_begun() {
                    tracked.timing.first();
                }
            }
            match &frame {
                Some(Err(_)) => end(this.tracked, RequestEnd::BrokeOff),
                // Checked after each frame, because a body of known length is over with its last frame.
                None => end(this.tracked, RequestEnd::Complete),
                Some(Ok(_)) if this.body.is_end_stream() => {
                    end(this.tracked, RequestEnd::Complete);
                }
                Some(Ok(_)) => {}
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if !tracked.record.poll_cancelled(cx) {
            return Poll::Pending;
        }
        // The server drops the body with the error, which closes the connection to the endpoint.
        Poll::Ready(Some(Err("an operator has cancelled the request".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
