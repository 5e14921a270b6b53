//! The body of a tracked request's response.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::Body as PageBody;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Either;
use pin_project_lite::pin_project;

use super::Tracked;
use crate::log::RequestEnd;

pin_project! {
    /// A response body that counts its bytes and knows how it ends.
    pub(crate) struct TrackedBody<B> {
        // Dropped first, so that the request's work has ended by the time of its log line.
        #[pin]
        body: Either<B, PageBody>,
        // `None` once the body is over.
        tracked: Option<Box<Tracked>>,
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> TrackedBody<B> {
    /// Wraps the body of the handler's response.
    pub(crate) fn new(body: B, tracked: Box<Tracked>) -> Self {
        Self::tracked(Either::Left(body), tracked)
    }

    /// Wraps the body of a page in place of the handler's response.
    pub(crate) fn page(page: PageBody, tracked: Box<Tracked>) -> Self {
        Self::tracked(Either::Right(page), tracked)
    }

    /// Wraps the body of a page that is not tracked any more.
    pub(crate) fn last(page: PageBody) -> Self {
        Self {
            body: Either::Right(page),
            tracked: None,
        }
    }

    fn tracked(body: Either<B, PageBody>, tracked: Box<Tracked>) -> Self {
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
            return this.body.poll_frame(cx);
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
            return Poll::Ready(frame);
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
