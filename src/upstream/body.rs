//! The body of a response, which is either the endpoint's, as a stream, or an error message of this crate.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use super::answer_body::AnswerBody;
use super::pool::Release;
use super::recallable_body::RecallableBody;
use super::upgrade::Tunnel;
use crate::gate::ClientStall;

/// The body of a [`Forward`](super::Forward)'s response. Dropping it unread closes the connection to the endpoint.
///
/// The body of a 101 carries a websocket: it has no bytes of its own, and copies those of the websocket while it is polled.
pub struct ForwardBody(Content);

// The large ones are boxed, because the body is moved through each layer and the server.
enum Content {
    Answer(Box<AnswerBody>),
    /// An answer whose slot may be recalled.
    Recallable(RecallableBody),
    Full(Full<Bytes>),
    /// A websocket. The body has no bytes, and ends when the websocket does.
    Tunnel(Box<Tunnel>),
}

/// An error that ends a body if the endpoint broke off, or was silent for too long, in the middle of its answer, or if the
/// answer's slot was recalled.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BodyError(Cause);

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("the endpoint broke off in the middle of its answer")]
    Broken(#[source] hyper::Error),
    #[error("the endpoint sent nothing for {s} s in the middle of its answer", s = .0.as_secs_f64())]
    Silent(Duration),
    #[error("others needed the slot of a client that did not read its answer")]
    Recalled,
}

impl BodyError {
    pub(super) fn broken(error: hyper::Error) -> Self {
        Self(Cause::Broken(error))
    }

    pub(super) fn silent(limit: Duration) -> Self {
        Self(Cause::Silent(limit))
    }

    pub(super) fn recalled() -> Self {
        Self(Cause::Recalled)
    }

    /// Returns the time for which the endpoint was silent, or `None` if it broke off.
    pub(super) fn silence(&self) -> Option<Duration> {
        match self.0 {
            Cause::Broken(_) | Cause::Recalled => None,
            Cause::Silent(limit) => Some(limit),
        }
    }
}

impl ForwardBody {
    /// Creates the body of an endpoint's answer, which comes over `connection` and may be silent for up to `idle`.
    pub(super) fn endpoint(body: Incoming, connection: Box<dyn Release>, idle: Duration) -> Self {
        let answer = AnswerBody::new(body, connection, idle);
        Self(Content::Answer(Box::new(answer)))
    }

    pub(super) fn tunnel(tunnel: Tunnel) -> Self {
        Self(Content::Tunnel(Box::new(tunnel)))
    }

    /// Lets the answer end when its slot is recalled. Its beginning has been read.
    pub(super) fn recalled_with(self, stall: &ClientStall) -> Self {
        match self.0 {
            Content::Answer(answer) => {
                Self(Content::Recallable(RecallableBody::new(answer, stall)))
            }
            content => Self(content),
        }
    }

    pub(super) fn full(body: Bytes) -> Self {
        Self(Content::Full(body.into()))
    }

    /// Waits for the first piece of the body, for its end, or until `limit` is over. The piece is kept for the reader. A
    /// limit of `None` stands for the body's own, after which the body has failed.
    pub(super) fn poll_first(
        &mut self,
        limit: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BodyError>> {
        match &mut self.0 {
            Content::Answer(answer) => answer.poll_first(limit, cx),
            Content::Recallable(_) | Content::Full(_) | Content::Tunnel(_) => Poll::Ready(Ok(())),
        }
    }

    /// Waits for one more piece behind those that are kept for the reader, or for the end.
    pub(super) fn poll_further(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        match &mut self.0 {
            Content::Answer(answer) => answer.poll_further(cx),
            Content::Recallable(_) | Content::Full(_) | Content::Tunnel(_) => Poll::Ready(Ok(())),
        }
    }

    /// Returns the pieces of an endpoint's answer that are kept for the reader, and `true` if nothing follows.
    pub(super) fn beginning(&self) -> Option<(Cow<'_, [u8]>, bool)> {
        match &self.0 {
            Content::Answer(answer) => Some(answer.beginning()),
            Content::Recallable(_) | Content::Full(_) | Content::Tunnel(_) => None,
        }
    }

    /// Returns the time since which a piece is awaited, or `None` if the reader awaits none.
    pub(super) fn awaited_since(&self) -> Option<Instant> {
        match &self.0 {
            Content::Answer(answer) => answer.awaited_since(),
            Content::Recallable(_) | Content::Full(_) | Content::Tunnel(_) => None,
        }
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
            Content::Answer(answer) => answer.poll_frame(cx),
            Content::Recallable(answer) => answer.poll_frame(cx),
            Content::Full(body) => {
                let frame = Pin::new(body).poll_frame(cx);
                frame.map_err(|never| match never {})
            }
            Content::Tunnel(tunnel) => tunnel.poll_ended(cx).map(|()| None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Content::Answer(answer) => answer.is_end_stream(),
            Content::Recallable(answer) => answer.is_end_stream(),
            Content::Full(body) => body.is_end_stream(),
            Content::Tunnel(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Answer(answer) => answer.size_hint(),
            Content::Recallable(answer) => answer.size_hint(),
            Content::Full(body) => body.size_hint(),
            Content::Tunnel(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for ForwardBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardBody").finish_non_exhaustive()
    }
}
