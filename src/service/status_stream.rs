//! The body of a response that began while its request waited: comments with the position, then the answer.
//!
//! The body owns the future of the request and drives it, so a server that drops the body ends the wait.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::clock;
use crate::gate::QueuePlace;
use crate::http::{
    LineEvents, Rejection, error_event, is_event_stream, is_json, queue_comment, read_short,
    with_retry_after,
};
use crate::queue::DelayedHead;

/// A request that has yet to get its answer.
pub(crate) trait PendingAnswer<T> {
    /// Waits for the answer. Resolves to `None` if the request fails with an error instead of a response.
    fn poll_answer(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Response<T>>>;

    /// Returns the position at which the request waits for a slot, or `None` if it does not wait.
    fn place(&self) -> Option<QueuePlace>;

    /// Returns the time that the request waited, once it was passed to the inner service.
    fn waited(&self) -> Option<Duration> {
        None
    }
}

/// A writer of the events that tell a client where its request is, while that waits.
pub(crate) trait StatusWriter {
    /// Returns the event about a request that waits at `place`.
    fn status(&mut self, place: &QueuePlace) -> Bytes;

    /// Returns the event about the end of the wait, once, if there is one.
    fn end(&mut self) -> Option<Bytes> {
        None
    }
}

/// A writer of comments, which clients ignore unless they look for them.
struct CommentWriter;

impl StatusWriter for CommentWriter {
    fn status(&mut self, place: &QueuePlace) -> Bytes {
        queue_comment(place)
    }
}

/// The body of a response that began while its request waited.
///
/// The answer's own head comes too late, so its contents are sent as an event:
///
/// | answer | events after the comments |
/// |---|---|
/// | a stream of events | its body as it is, with its trailers |
/// | any other success | an event for each line of its body: a line is sent on as it comes, and lines of JSON stay whole |
/// | a rejection, any other status, an error | one event of type `error` |
///
/// The mutex is never contended. It makes the body `Sync`, even if the waiting request is not.
pub(crate) struct StatusStream<T>(Mutex<Stage<T>>);

/// The stages of the body: the wait, and then one of the forms of the answer until it ends.
enum Stage<T> {
    Pending(Comments<T>),
    /// The answer is there, and the end of the wait was told before it. `None` once the answer was taken.
    Answered(Option<Box<Response<T>>>, DelayedHead),
    Events(Pin<Box<T>>),
    Text(TextEvents<T>),
    Failed(FailedAnswer<T>),
    Ended,
}

impl<T> StatusStream<T> {
    /// Returns the body of a response with comments.
    pub(crate) fn new(pending: impl PendingAnswer<T> + Send + 'static) -> Self {
        Self::written_by(Box::new(CommentWriter), pending)
    }

    /// Returns the body of a response with the events of this writer.
    pub(crate) fn written_by(
        writer: Box<dyn StatusWriter + Send>,
        pending: impl PendingAnswer<T> + Send + 'static,
    ) -> Self {
        Self(Mutex::new(Stage::Pending(Comments {
            pending: Box::pin(pending),
            writer,
            head: DelayedHead::default(),
            due: Due::Now,
            took: Duration::ZERO,
        })))
    }

    /// Returns the place for the head of the answer, which is empty until the answer has come.
    pub(crate) fn delayed_head(&self) -> DelayedHead {
        self.look(|stage| match stage {
            Stage::Pending(comments) => comments.head.clone(),
            Stage::Answered(_, head) => head.clone(),
            Stage::Events(_) | Stage::Text(_) | Stage::Failed(_) | Stage::Ended => {
                DelayedHead::default()
            }
        })
    }

    /// Calls `look` with the current stage.
    fn look<R>(&self, look: impl FnOnce(&Stage<T>) -> R) -> R {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: Body<Data = Bytes>> Body for StatusStream<T> {
    type Data = Bytes;
    type Error = T::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, T::Error>>> {
        let stage = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let event = |bytes| Poll::Ready(Some(Ok(Frame::data(bytes))));
        if let Stage::Pending(comments) = stage {
            match ready!(comments.poll(cx)) {
                Said::Comment(comment) => return event(comment),
                Said::Answer(Some(response)) => {
                    let head = comments.head.clone();
                    let is_success = response.status().is_success();
                    if let Some(end) = is_success.then(|| comments.writer.end()).flatten() {
                        // Sent before the head is known, so that it does not count as a part of the answer.
                        *stage = Stage::Answered(Some(Box::new(response)), head);
                        return event(end);
                    }
                    *stage = Stage::of(response, &head);
                }
                Said::Answer(None) => {
                    let mut failed = Response::new(());
                    *failed.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                    comments.head.set(failed.into_parts().0);
                    *stage = Stage::Ended;
                    let message = "the request failed before there was a response";
                    let error = failure(StatusCode::INTERNAL_SERVER_ERROR, message);
                    return event(error_event(error.as_bytes()));
                }
            }
        }
        if let Stage::Answered(response, head) = stage
            && let Some(response) = response.take()
        {
            *stage = Stage::of(*response, &head.clone());
        }
        match stage {
            Stage::Events(body) => body.as_mut().poll_frame(cx),
            Stage::Text(text) => text.poll_frame(cx),
            Stage::Failed(failed) => {
                let error = ready!(failed.poll(cx));
                *stage = Stage::Ended;
                event(error)
            }
            Stage::Ended => Poll::Ready(None),
            Stage::Pending(_) | Stage::Answered(..) => unreachable!("answered above"),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.look(|stage| match stage {
            Stage::Events(body) => body.is_end_stream(),
            Stage::Ended => true,
            Stage::Pending(_) | Stage::Answered(..) | Stage::Text(_) | Stage::Failed(_) => false,
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.look(|stage| match stage {
            Stage::Events(body) => body.size_hint(),
            Stage::Ended => SizeHint::with_exact(0),
            Stage::Pending(_) | Stage::Answered(..) | Stage::Text(_) | Stage::Failed(_) => {
                SizeHint::default()
            }
        })
    }
}

impl<T> std::fmt::Debug for StatusStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatusStream").finish_non_exhaustive()
    }
}

impl<T> Stage<T> {
    /// Returns the stage in which the body of `response` is read, and stores its head in `delayed`.
    fn of(response: Response<T>, delayed: &DelayedHead) -> Self {
        let (head, body) = response.into_parts();
        let body = Box::pin(body);
        let is_encoded = is_encoded(&head.headers);
        let stage = match head.status.is_success() && !is_encoded {
            true if is_event_stream(&head.headers) => Self::Events(body),
            true => Self::Text(TextEvents::new(body)),
            false => Self::Failed(FailedAnswer {
                body,
                read: BytesMut::new(),
                status: head.status,
                is_encoded,
                is_json: is_json(&head.headers),
                retry_after: retry_after(&head.headers),
            }),
        };
        delayed.set(head);
        stage
    }
}

/// Returns `true` if a response's body is encoded, which was not asked for.
fn is_encoded(response: &HeaderMap) -> bool {
    let encoding = response.get(CONTENT_ENCODING);
    encoding.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Returns the seconds of a response's `Retry-After`. Returns `None` for a date.
fn retry_after(response: &HeaderMap) -> Option<u64> {
    response
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// The comments, or other events, while the request waits.
struct Comments<T> {
    pending: Pin<Box<dyn PendingAnswer<T> + Send>>,
    writer: Box<dyn StatusWriter + Send>,
    /// The head of the answer, once it is there.
    head: DelayedHead,
    due: Due,
    /// The time that the last look for the position took.
    took: Duration,
}

/// The time at which the next comment is due.
enum Due {
    Now,
    After(Pin<Box<Sleep>>),
    /// Comments are impossible, because there is no Tokio clock.
    Never,
}

/// The next part of the body while the request waits.
enum Said<T> {
    Comment(Bytes),
    Answer(Option<Response<T>>),
}

/// The time from one comment to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// The limit on the time for which waiting requests look for their positions. All of them together spend at most one
/// part in this many, because the look holds the gate's lock, and takes long in a large room.
const SHARE_OF_LOCK: u32 = 20;

impl<T> Comments<T> {
    /// Returns the answer as soon as it is there, and a comment each time that one is due.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Said<T>> {
        let answer = self.pending.as_mut().poll_answer(cx);
        if let Some(waited) = self.pending.waited() {
            self.head.set_waited(waited);
        }
        if let Poll::Ready(answer) = answer {
            return Poll::Ready(Said::Answer(answer));
        }
        // The loop ends at the latest when the clock is armed for a later time.
        loop {
            match &mut self.due {
                Due::Now => {}
                Due::After(sleep) => ready!(sleep.as_mut().poll(cx)),
                Due::Never => return Poll::Pending,
            }
            let now = clock::now();
            let place = self.pending.place();
            let depth = place.map_or(0, |place| place.depth);
            let took = clock::now().saturating_duration_since(now);
            // The shorter of two times is usual. A single look may take long because the lock or the processor was
            // busy.
            let usual = took.min(std::mem::replace(&mut self.took, took));
            self.rest(now + interval(usual, depth));
            let comment = match place {
                Some(place) => Some(self.writer.status(&place)),
                None => self.writer.end(),
            };
            if let Some(comment) = comment {
                return Poll::Ready(Said::Comment(comment));
            }
        }
    }

    /// Makes the next comment due at `until`.
    fn rest(&mut self, until: std::time::Instant) {
        match &mut self.due {
            Due::After(sleep) => sleep.as_mut().reset(until.into()),
            Due::Now | Due::Never => {
                let sleep = clock::sleep_until(until);
                self.due = sleep.map_or(Due::Never, |sleep| Due::After(Box::pin(sleep)));
            }
        }
    }
}

/// Returns the time to the next comment, if a look for the position took this long in a room with `depth` waiters.
fn interval(took: Duration, depth: usize) -> Duration {
    let waiters = u32::try_from(depth).unwrap_or(u32::MAX);
    took.saturating_mul(waiters)
        .saturating_mul(SHARE_OF_LOCK)
        .max(INTERVAL)
}

/// A successful answer of any other type, which is sent as a stream of events.
struct TextEvents<T> {
    body: Pin<Box<T>>,
    lines: LineEvents,
    trailers: Option<HeaderMap>,
    is_over: bool,
}

impl<T> TextEvents<T> {
    fn new(body: Pin<Box<T>>) -> Self {
        Self {
            body,
            lines: LineEvents::default(),
            trailers: None,
            is_over: false,
        }
    }
}

impl<T: Body<Data = Bytes>> TextEvents<T> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, T::Error>>> {
        // The loop ends with the first piece of text that is not empty, or with the body.
        loop {
            if let Some(trailers) = self.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let events = match ready!(self.body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => Some(self.lines.push(&piece)),
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        self.lines.end()
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.is_over = true;
                    self.lines.end()
                }
            };
            if let Some(events) = events.filter(|events| !events.is_empty()) {
                return Poll::Ready(Some(Ok(Frame::data(events))));
            }
        }
    }
}

/// A failed answer while its body is read.
struct FailedAnswer<T> {
    body: Pin<Box<T>>,
    read: BytesMut,
    status: StatusCode,
    is_encoded: bool,
    is_json: bool,
    retry_after: Option<u64>,
}

impl<T: Body<Data = Bytes>> FailedAnswer<T> {
    /// Returns the event that describes the failure. It is the body, if that is JSON and was read whole.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let is_whole = ready!(read_short(self.body.as_mut(), &mut self.read, cx));
        let is_known = is_whole && !self.is_encoded && !self.read.is_empty();
        let error: Cow<'_, str> = match std::str::from_utf8(&self.read) {
            Ok(json) if is_known && self.is_json => json.into(),
            Ok(text) if is_known => failure(self.status, text).into(),
            _ => {
                let message = format!("the request was answered with {}", self.status);
                failure(self.status, &message).into()
            }
        };
        let error = match self.retry_after {
            Some(seconds) => with_retry_after(&error, seconds),
            None => error,
        };
        Poll::Ready(error_event(error.as_bytes()))
    }
}

/// Returns an error in the JSON form of a rejection.
fn failure(status: StatusCode, message: &str) -> String {
    Rejection::new(status, "upstream_failed", message.to_owned()).to_json()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::{BodyExt, Full};

    use super::*;

    /// A request that waits forever. `0` has the milliseconds that its first looks take, and later looks take 0 ms.
    struct Waits(std::collections::VecDeque<u64>);

    impl PendingAnswer<Full<Bytes>> for Mutex<Waits> {
        fn poll_answer(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Response<Full<Bytes>>>> {
            Poll::Pending
        }

        fn place(&self) -> Option<QueuePlace> {
            let took = self.lock().unwrap().0.pop_front().unwrap_or_default();
            _ = tokio::time::advance(Duration::from_millis(took)).now_or_never();
            Some(QueuePlace {
                position: 1,
                estimated_wait: None,
                depth: 1_000,
                starting: None,
            })
        }
    }

    /// Returns the number of comments that come in 60 s.
    async fn comments(looks: impl Into<std::collections::VecDeque<u64>>) -> usize {
        let mut body = StatusStream::new(Mutex::new(Waits(looks.into())));
        let end = tokio::time::Instant::now() + Duration::from_secs(60);
        let mut count = 0;
        while let Ok(frame) = tokio::time::timeout_at(end, body.frame()).await {
            assert!(frame.unwrap().is_ok());
            count += 1;
        }
        count
    }

    #[tokio::test(start_paused = true)]
    async fn one_slow_look_makes_no_comment_rarer() {
        for looks in [vec![], vec![20], vec![0, 0, 20, 0, 20]] {
            assert!(comments(looks.clone()).await >= 59, "{looks:?}");
        }
        // 1 ms for each of 1,000 waiters makes 1 s, which is a twentieth of 20 s.
        let slow = comments([1; 60]).await;
        assert!(slow <= 5, "{slow}");
    }

    #[test]
    fn comments_are_rarer_the_longer_positions_take() {
        let micros = Duration::from_micros;
        assert_eq!(interval(Duration::ZERO, usize::MAX), INTERVAL);
        assert_eq!(interval(micros(10), 100), INTERVAL);
        // 1 ms for each of 10,000 waiters makes 10 s of the lock's time, which is a twentieth of 200 s.
        let seconds = interval(micros(1_000), 10_000).as_secs();
        assert_eq!(seconds, 200);
    }
}
