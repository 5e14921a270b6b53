//! The body of an endpoint's answer, with the connection that it comes over.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::BodyError;
use super::pool::Release;
use crate::http::IdleTimer;

/// The body of an answer. Its connection is given back at the body's end, and closed if the body is dropped before.
pub(super) struct AnswerBody {
    /// The body, or `None` after an error.
    body: Option<Incoming>,
    /// The connection, until the answer has ended.
    connection: Option<Box<dyn Release>>,
    /// The first piece, which was read before the head of the answer was passed on.
    first: Option<Frame<Bytes>>,
    /// Further pieces that were read before the head was passed on, for a first event that comes in several.
    further: VecDeque<Frame<Bytes>>,
    /// `true` once the body has been read to its end.
    is_over: bool,
    idle: IdleTimer,
}

impl AnswerBody {
    pub(super) fn new(body: Incoming, connection: Box<dyn Release>, idle: Duration) -> Self {
        let is_empty = body.is_end_stream();
        let mut answer = Self {
            body: Some(body),
            connection: Some(connection),
            first: None,
            further: VecDeque::new(),
            is_over: false,
            idle: IdleTimer::new(idle),
        };
        if is_empty {
            answer.release();
        }
        answer
    }

    /// Waits for the first piece, for the end, or until `limit` is over, or the answer's own limit if it is shorter. Only
    /// the answer's own limit is an error.
    pub(super) fn poll_first(
        &mut self,
        limit: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), BodyError>> {
        if self.is_end_stream() {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(frame) = self.poll_piece(cx) {
            self.first = frame.transpose()?;
            return Poll::Ready(Ok(()));
        }
        let own = self.idle.limit();
        let shorter = limit.filter(|limit| *limit < own);
        ready!(self.idle.poll_within(shorter.unwrap_or(own), cx));
        Poll::Ready(match shorter {
            Some(_) => Ok(()),
            None => Err(self.silent()),
        })
    }

    /// Waits for one more piece, which is kept behind those that were read before, or for the end.
    pub(super) fn poll_further(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let frame = ready!(self.poll_piece(cx)).transpose()?;
        self.further.extend(frame);
        Poll::Ready(Ok(()))
    }

    /// Returns the pieces that were read before the head of the answer is passed on, and `true` if nothing follows.
    pub(super) fn beginning(&self) -> (Cow<'_, [u8]>, bool) {
        let is_over = self.is_over || self.body.as_ref().is_none_or(Body::is_end_stream);
        let first = self.first.as_ref().and_then(Frame::data_ref);
        let first = first.map_or(&[][..], |data| &data[..]);
        if self.further.is_empty() {
            return (Cow::Borrowed(first), is_over);
        }
        let further = self.further.iter().filter_map(Frame::data_ref);
        let mut all = first.to_vec();
        further.for_each(|data| all.extend_from_slice(data));
        (Cow::Owned(all), is_over)
    }

    /// Returns the time since which a piece is awaited, or `None` if the reader awaits none.
    pub(super) fn awaited_since(&self) -> Option<Instant> {
        self.idle.since()
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take().or_else(|| self.further.pop_front()) {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Poll::Ready(frame) = self.poll_piece(cx) {
            return Poll::Ready(frame);
        }
        ready!(self.idle.poll_expired(cx));
        Poll::Ready(Some(Err(self.silent())))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.first.is_none()
            && self.further.is_empty()
            && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let rest = self
            .body
            .as_ref()
            .map_or(SizeHint::with_exact(0), Body::size_hint);
        let held = self.first.iter().chain(&self.further);
        let held = held
            .filter_map(Frame::data_ref)
            .map(Bytes::len)
            .sum::<usize>();
        if held == 0 {
            return rest;
        }
        let held = held as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(held));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(held));
        }
        hint
    }

    /// Reads the next piece from the connection.
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        self.idle.on_piece();
        self.is_over |= frame.is_none();
        match &frame {
            // A body of known length is over with its last frame.
            Some(Ok(_)) if !body.is_end_stream() => {}
            Some(Ok(_)) | None => self.release(),
            Some(Err(_)) => self.close(),
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::broken)))
    }

    /// Gives the connection back, because the answer has ended.
    fn release(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.release();
        }
    }

    /// Closes the connection, so that the endpoint can stop.
    fn close(&mut self) {
        self.connection = None;
        self.body = None;
    }

    fn silent(&mut self) -> BodyError {
        self.close();
        BodyError::silent(self.idle.limit())
    }
}
