//! The body of an answer: the endpoint's as it comes in, or our own words.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use pin_project_lite::pin_project;

pin_project! {
    /// The body of a [`Forward`](super::Forward)'s response. Dropping it unread closes the connection to
    /// the endpoint.
    #[derive(Debug)]
    pub struct ForwardBody {
        #[pin]
        inner: Inner,
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
    pub(super) fn endpoint(body: Incoming) -> Self {
        let inner = Inner::Endpoint { body };
        Self { inner }
    }

    pub(super) fn full(body: Bytes) -> Self {
        let body = Full::from(body);
        let inner = Inner::Own { body };
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
        match self.project().inner.project() {
            InnerProj::Endpoint { body } => body.poll_frame(cx).map_err(BodyError),
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
