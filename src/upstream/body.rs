//! The body of a response, which is either the endpoint's, as a stream, or an error message of this crate.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use super::upload::Sending;
use crate::http::{IdleTimer, PermitBody};

pin_project! {
    /// The body of a [`Forward`](super::Forward)'s response. Dropping it unread closes the connection to the endpoint.
    #[derive(Debug)]
    pub struct ForwardBody {
        // The request ends together with the answer, so the rest of its body is not sent then.
        #[pin]
        inner: PermitBody<Incoming, Sending>,
        // The first piece, which was read before the head of the answer was passed on.
        first: Option<Frame<Bytes>>,
        idle: IdleTimer,
    }
}

/// An error that ends a body if the endpoint broke off, or was silent for too long, in the middle of its answer.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct BodyError(Cause);

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("the endpoint broke off in the middle of its answer")]
    Broken(#[source] hyper::Error),
    #[error("the endpoint sent nothing for {s} s in the middle of its answer", s = .0.as_secs_f64())]
    Silent(Duration),
}

impl BodyError {
    fn broken(error: hyper::Error) -> Self {
        Self(Cause::Broken(error))
    }

    /// Returns the time for which the endpoint was silent, or `None` if it broke off.
    pub(super) fn silence(&self) -> Option<Duration> {
        match self.0 {
            Cause::Broken(_) => None,
            Cause::Silent(limit) => Some(limit),
        }
    }
}

impl ForwardBody {
    /// Creates the body of an endpoint's answer, which may be silent for up to `idle`. `sending` is the request's body, if
    /// a part of it may still be unsent.
    pub(super) fn endpoint(body: Incoming, sending: Option<Sending>, idle: Duration) -> Self {
        Self::of(PermitBody::new(body, sending), idle)
    }

    pub(super) fn full(body: Bytes) -> Self {
        Self::of(PermitBody::rejection(body), Duration::MAX)
    }

    fn of(inner: PermitBody<Incoming, Sending>, idle: Duration) -> Self {
        Self {
            inner,
            first: None,
            idle: IdleTimer::new(idle),
        }
    }

    /// Waits for the first piece of the body, for its end, or until `limit` is over. The piece is kept for the reader. A
    /// limit of `None` stands for the body's own, after which the body has failed.
    pub(super) fn poll_first(
        &mut self,
        limit: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BodyError>> {
        if self.is_end_stream() {
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.idle.on_piece();
                self.first = frame.transpose().map_err(BodyError::broken)?;
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                let own = self.idle.limit();
                let shorter = limit.filter(|limit| *limit < own);
                ready!(self.idle.poll_within(shorter.unwrap_or(own), cx));
                Poll::Ready(match shorter {
                    Some(_) => Ok(()),
                    None => Err(BodyError(Cause::Silent(own))),
                })
            }
        }
    }

    /// Returns the time since which a piece is awaited, or `None` if the reader awaits none.
    pub(super) fn awaited_since(&self) -> Option<Instant> {
        self.idle.since()
    }
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut this = self.project();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Poll::Ready(frame) = this.inner.as_mut().poll_frame(cx) {
            this.idle.on_piece();
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::broken)));
        }
        ready!(this.idle.poll_expired(cx));
        this.inner.set(PermitBody::default()); // closes the connection, so that the endpoint can stop
        let silent = Cause::Silent(this.idle.limit());
        Poll::Ready(Some(Err(BodyError(silent))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.inner.size_hint();
        let Some(first) = self.first.as_ref().and_then(Frame::data_ref) else {
            return rest;
        };
        let first = first.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(first));
        }
        hint
    }
}
