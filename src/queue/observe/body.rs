//! The response body of a queue with an observer, which reports how the body ends.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::observation::Observation;
use super::{Observer, RequestEnd};
use crate::admit::RejectReason;
use crate::queue::delayed_head::DelayedHead;

pin_project! {
    /// The body of a response of an [`Observed`](super::Observed) queue: the queue's own body, whose end the observer is
    /// told.
    pub struct ObservedBody<B, O: Observer> {
        // Dropped first, so that the slot is free before the event of a body that is dropped.
        #[pin]
        body: B,
        // `None` once the body is over, and for the body of a rejection.
        observation: Option<Observation<O>>,
        // The bytes that are left of the length, if that is known.
        left: Option<u64>,
        // The head of the answer, if the response began while its request waited.
        delayed: Option<DelayedHead>,
    }
}

impl<B, O: Observer> ObservedBody<B, O> {
    /// Returns a reference to the queue's own body, such as a [`QueueResponseBody`](crate::queue::QueueResponseBody).
    #[must_use]
    pub fn get_ref(&self) -> &B {
        &self.body
    }
}

impl<B: Body, O: Observer> ObservedBody<B, O> {
    /// Puts the observation into the body of the response, unless it ends here.
    pub(super) fn wrap(
        response: Response<B>,
        observation: Option<Observation<O>>,
        delayed: Option<DelayedHead>,
    ) -> Response<Self> {
        let mut observation = observation.filter(Observation::is_open);
        let by_length = observation.as_ref().filter(|open| open.ends_by_length());
        let left = by_length.and_then(|_| length(&response));
        if let Some(open) = &mut observation
            && (open.has_no_body(response.status())
                || left == Some(0)
                || response.body().is_end_stream())
        {
            open.end_body(RequestEnd::Complete);
            observation = None;
        }
        response.map(|body| Self {
            body,
            observation,
            left,
            delayed,
        })
    }
}

/// Returns the length of the body, if it is known.
fn length<B: Body>(response: &Response<B>) -> Option<u64> {
    let announced = || response.headers().get(CONTENT_LENGTH)?.to_str().ok();
    let exact = response.body().size_hint().exact();
    exact.or_else(|| announced()?.parse().ok())
}

/// Returns an empty body, which layers that answer in place of a service need, such as timeouts and CORS.
impl<B: Default, O: Observer> Default for ObservedBody<B, O> {
    fn default() -> Self {
        Self {
            body: B::default(),
            observation: None,
            left: None,
            delayed: None,
        }
    }
}

impl<B: Body, O: Observer> Body for ObservedBody<B, O> {
    type Data = B::Data;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(observation) = this.observation else {
            return this.body.poll_frame(cx);
        };
        observation.set_polled(true);
        let polled = this.body.as_mut().poll_frame(cx);
        observation.set_polled(false);
        if let Some(delayed) = this.delayed {
            follow(observation, delayed);
        }
        let frame = ready!(polled);
        if is_last(&frame, this.left) || this.body.is_end_stream() {
            match frame {
                Some(Err(_)) => observation.end_body(RequestEnd::BodyFailed),
                _ => observation.end_body(RequestEnd::Complete),
            }
        }
        if !observation.is_open() {
            *this.observation = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns `true` if servers read nothing after this frame: it is an error, the end, trailers or the last of a known
/// number of bytes.
fn is_last<D: Buf, E>(frame: &Option<Result<Frame<D>, E>>, left: &mut Option<u64>) -> bool {
    let Some(Ok(frame)) = frame else {
        return true;
    };
    if let (Some(data), Some(left)) = (frame.data_ref(), &mut *left) {
        *left = left.saturating_sub(data.remaining() as u64);
    }
    frame.is_trailers() || *left == Some(0)
}

/// Reports the progress of a request that went on waiting in the body of its response.
#[cold]
fn follow<O: Observer>(observation: &mut Observation<O>, delayed: &DelayedHead) {
    if let Some(waited) = delayed.waited().filter(|_| observation.is_waiting()) {
        observation.admit(waited);
    }
    let Some(head) = delayed.get() else { return };
    if observation.is_waiting() {
        if let Some(reason) = head.extensions.get::<RejectReason>() {
            return observation.reject(reason, head.status);
        }
        observation.admit_late(); // the inner service failed in `poll_ready`
    }
    observation.respond(head.status);
}

impl<B, O: Observer> fmt::Debug for ObservedBody<B, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedBody").finish_non_exhaustive()
    }
}
