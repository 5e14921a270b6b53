//! The body of a response: the endpoint's, streamed, or an error of our own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use super::upload::Sending;
use crate::http::PermitBody;

pin_project! {
    /// The body of a [`Forward`](super::Forward)'s response. Dropping it unread closes the connection to
    /// the endpoint.
    #[derive(Debug)]
    pub struct ForwardBody {
        // The request goes with the end of the answer: the rest of it is not sent then.
        #[pin]
        inner: PermitBody<Incoming, Sending>,
    }
}

/// The endpoint broke off in the middle of its answer.
#[derive(Debug, thiserror::Error)]
#[error("the endpoint broke off in the middle of its answer")]
pub struct BodyError(#[source] hyper::Error);

impl ForwardBody {
    /// An endpoint's answer, and its request if that is perhaps not all sent.
    pub(super) fn endpoint(body: Incoming, sending: Option<Sending>) -> Self {
        let inner = PermitBody::new(body, sending);
        Self { inner }
    }

    pub(super) fn full(body: Bytes) -> Self {
        let inner = PermitBody::rejection(body);
        Self { inner }
    }
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.project().inner.poll_frame(cx).map_err(BodyError)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
