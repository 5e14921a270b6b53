//! The body of a response, which is either the endpoint's, as a stream, or an error message of this crate.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::pool::Release;

/// The body of a [`Forward`](super::Forward)'s response. Dropping it unread closes the connection to the endpoint.
pub struct ForwardBody(Content);

enum Content {
    Answer {
        body: Incoming,
        /// The connection that the answer comes over, until the answer has ended.
        connection: Option<Box<dyn Release>>,
    },
    Full(Full<Bytes>),
}

/// An error that ends a body if the endpoint broke off in the middle of its answer.
#[derive(Debug, thiserror::Error)]
#[error("the endpoint broke off in the middle of its answer")]
pub struct BodyError(#[source] hyper::Error);

impl ForwardBody {
    /// Creates the body of an endpoint's answer, which comes over `connection`.
    pub(super) fn endpoint(body: Incoming, connection: Box<dyn Release>) -> Self {
        let mut connection = Some(connection);
        if body.is_end_stream() {
            release(&mut connection);
        }
        Self(Content::Answer { body, connection })
    }

    pub(super) fn full(body: Bytes) -> Self {
        Self(Content::Full(body.into()))
    }
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Content::Answer { body, connection } => {
                let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
                match &frame {
                    // A body of known length is over with its last frame.
                    Some(Ok(_)) if !body.is_end_stream() => {}
                    Some(Ok(_)) | None => release(connection),
                    Some(Err(_)) => *connection = None, // closes it
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError)))
            }
            Content::Full(body) => {
                let frame = Pin::new(body).poll_frame(cx);
                frame.map_err(|never| match never {})
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Answer { body, .. } => body.is_end_stream(),
            Content::Full(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Answer { body, .. } => body.size_hint(),
            Content::Full(body) => body.size_hint(),
        }
    }
}

/// Gives the connection of an answer back, because the answer has ended.
fn release(connection: &mut Option<Box<dyn Release>>) {
    if let Some(connection) = connection.take() {
        connection.release();
    }
}

impl fmt::Debug for ForwardBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardBody").finish_non_exhaustive()
    }
}
