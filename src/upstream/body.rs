//! The body of a response, which is either the endpoint's, as a stream, or an error message of this crate.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use super::upload::Sending;
use crate::http::PermitBody;

pin_project! {
    /// The body of a [`Forward`](super::Forward)'s response. Dropping it unread closes the connection to the endpoint.
    #[derive(Debug)]
    pub struct ForwardBody {
        // The request ends together with the answer, so the rest of its body is not sent then.
        #[pin]
        inner: PermitBody<Incoming, Sending>,
    }
}

/// An error that ends a body if the endpoint broke off in the middle of its answer.
#[derive(Debug, thiserror::Error)]
#[error("the endpoint broke off in the middle of its answer")]
pub struct BodyError(#[source] hyper::Error);

impl ForwardBody {
    /// Creates the body of an endpoint's answer. `sending` is the request's body, if a part of it may still be unsent.
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
