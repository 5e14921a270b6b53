//! The body of a response: the endpoint's, streamed, or an error of our own.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use super::upload::Sending;

pin_project! {
    /// The body of a [`Forward`](super::Forward)'s response. Dropping it unread closes the connection to
    /// the endpoint.
    #[derive(Debug)]
    pub struct ForwardBody {
        #[pin]
        inner: Inner,
        // Dropped with the end of the answer: the rest of the request is not sent then.
        sending: Option<Sending>,
    }
}

pin_project! {
    #[project = InnerProj]
    #[derive(Debug)]
    enum Inner {
        Endpoint { #[pin] body: Incoming },
        Own { #[pin] body: Full<Bytes> },
    }
}

/// The endpoint broke off in the middle of its answer.
#[derive(Debug, thiserror::Error)]
#[error("the endpoint broke off in the middle of its answer")]
pub struct BodyError(#[source] hyper::Error);

impl ForwardBody {
    /// An endpoint's answer, and its request if that is perhaps not all sent.
    pub(super) fn endpoint(body: Incoming, sending: Option<Sending>) -> Self {
        Self {
            sending: sending.filter(|_| !body.is_end_stream()),
            inner: Inner::Endpoint { body },
        }
    }

    pub(super) fn full(body: Bytes) -> Self {
        let body = Full::from(body);
        Self {
            inner: Inner::Own { body },
            sending: None,
        }
    }
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.project();
        match this.inner.project() {
            InnerProj::Endpoint { mut body } => {
                let frame = ready!(body.as_mut().poll_frame(cx));
                // At the end or an error: closes the connection if the request is not all sent.
                if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
                    *this.sending = None;
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError)))
            }
            InnerProj::Own { body } => body.poll_frame(cx).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Endpoint { body } => body.is_end_stream(),
            Inner::Own { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Endpoint { body } => body.size_hint(),
            Inner::Own { body } => body.size_hint(),
        }
    }
}
