//! The progress of a request's body to its endpoint.
//!
//! If an answer does not come while the body is being sent, the cause may be the client, which has stopped sending, or
//! the endpoint, which has stopped reading. An [`Upload`] is the body as hyper reads it, and its [`Progress`] records
//! which of the two is awaited. It also keeps a small body, so that the request can be sent again.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

/// The body of a request as hyper reads it.
pub(super) struct Upload<B> {
    body: Content<B>,
    progress: Option<Progress>,
    /// The number of bytes that hyper still takes. `None` unless the length was announced.
    left: Option<u64>,
    is_polled: bool,
}

enum Content<B> {
    Client(B),
    /// All of a body that is sent again.
    Again(Bytes),
}

impl<B> Drop for Upload<B> {
    fn drop(&mut self) {
        // hyper never asked for the body, so all of it stayed here.
        if !self.is_polled
            && let Some(progress) = &self.progress
        {
            let mut state = progress.lock();
            state.kept = None;
            state.end();
        }
    }
}

/// The progress of a body, which its [`Upload`] shares with the request's future and its connection.
#[derive(Debug, Clone)]
pub(super) struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The time at which hyper last took a piece. `None` while hyper asks for more than the client has sent.
    taken: Option<Instant>,
    /// `true` once hyper has all of the body.
    has_ended: bool,
    /// `true` once the client's body has failed.
    has_failed: bool,
    /// The part of the body that hyper took, so that it can be sent again. `None` if it is not kept.
    kept: Option<Kept>,
}

/// The pieces of a body. Most bodies have one piece, which needs no list.
#[derive(Debug, Default)]
struct Kept {
    first: Bytes,
    others: Vec<Bytes>,
    length: usize,
}

/// The largest body in bytes that is kept to be sent again. It equals the default of `retry_body_limit_bytes`.
pub(super) const KEEP_LIMIT: usize = 1 << 20;

impl Kept {
    /// Adds a piece. Returns `None` if the body is larger than [`KEEP_LIMIT`] then.
    fn with(mut self, piece: &Bytes) -> Option<Self> {
        match self.length {
            0 => self.first = piece.clone(),
            _ => self.others.push(piece.clone()),
        }
        self.length += piece.len();
        (self.length <= KEEP_LIMIT).then_some(self)
    }

    /// Returns the whole body.
    fn join(self) -> Bytes {
        match self.others.is_empty() {
            true => self.first,
            false => [&[self.first], &*self.others].concat().concat().into(),
        }
    }
}

impl Progress {
    fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(State {
            taken: Some(now),
            has_ended: false,
            has_failed: false,
            kept: Some(Kept::default()),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time at which the endpoint will have been awaited for `limit`, or `None` if that is beyond the end
    /// of the clock. While the client is awaited, this time moves with the clock.
    pub(super) fn late_at(&self, limit: Duration) -> Option<Instant> {
        let taken = self.lock().taken;
        taken.unwrap_or_else(Instant::now).checked_add(limit)
    }

    /// Records that the body begins to be sent now, over a new connection.
    pub(super) fn begin(&self) {
        self.lock().taken = Some(Instant::now());
    }

    /// Returns `true` if hyper has all of the body.
    pub(super) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Returns `true` if the client's body has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.lock().has_failed
    }

    /// Returns the whole body, to send it again. Returns `None` if hyper has not taken all of it, or if the body was too
    /// large to be kept.
    pub(super) fn again<B>(&self) -> Option<Upload<B>> {
        let mut state = self.lock();
        if !state.has_ended {
            return None;
        }
        let body = state.kept.take()?.join();
        state.kept = Some(Kept::default()); // it is kept anew while it is sent again
        state.has_ended = false;
        drop(state);
        Some(Upload {
            left: Some(body.len() as u64),
            body: Content::Again(body),
            progress: Some(self.clone()),
            is_polled: false,
        })
    }
}

impl State {
    /// Keeps a piece that hyper takes. A body with trailers, or larger than [`KEEP_LIMIT`], is not kept.
    fn keep(&mut self, piece: Option<&Bytes>) {
        let kept = self.kept.take().zip(piece);
        self.kept = kept.and_then(|(kept, piece)| kept.with(piece));
    }

    /// Records that hyper has all of the body.
    fn end(&mut self) {
        self.taken = Some(Instant::now());
        self.has_ended = true;
    }
}

impl<B: Body> Upload<B> {
    /// Creates the body of a request that is sent at `now`, of which `announced` is the length, if it is known.
    pub(super) fn new(body: B, announced: Option<u64>, now: Instant) -> Self {
        let has_body = !body.is_end_stream();
        Self {
            body: Content::Client(body),
            progress: has_body.then(|| Progress::new(now)),
            left: announced,
            is_polled: false,
        }
    }
}

impl<B> Upload<B> {
    /// Creates an empty body.
    pub(super) fn empty() -> Self {
        Self {
            body: Content::Again(Bytes::new()),
            progress: None,
            left: None,
            is_polled: false,
        }
    }

    /// Returns the progress of the body, or `None` if the request has no body.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.progress.clone()
    }
}

impl<B: Body + Unpin> Content<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self {
            Self::Client(body) => {
                // If the data is already `Bytes`, this passes it on without a copy.
                let into_bytes = |mut data: B::Data| data.copy_to_bytes(data.remaining());
                let frame = Pin::new(body).poll_frame(cx);
                frame.map_ok(|frame| frame.map_data(into_bytes))
            }
            Self::Again(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Again(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
        }
    }
}

impl<B: Body + Unpin> Body for Upload<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let is_first = !std::mem::replace(&mut this.is_polled, true);
        let frame = this.body.poll_frame(cx);
        // Asked without the lock, because this is a caller's code, and not after the body's end.
        let is_over = matches!(frame, Poll::Ready(Some(Ok(_)))) && this.is_end_stream();
        let Some(progress) = &this.progress else {
            return frame;
        };
        let mut state = progress.lock();
        match &frame {
            Poll::Pending => state.taken = None,
            Poll::Ready(Some(Ok(frame))) => {
                state.keep(frame.data_ref());
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                this.left = this.left.map(|left| left.saturating_sub(length));
                // hyper does not poll again after the announced length, so the end is recognised by counting.
                let counted = this.left == Some(0);
                state.has_ended |= counted || frame.is_trailers() || is_over;
                // hyper takes the first piece at once, so that needs no look at the clock.
                if !is_first {
                    state.taken = Some(Instant::now());
                }
            }
            Poll::Ready(None) => state.end(),
            Poll::Ready(Some(Err(_))) => state.has_failed = true, // hyper closes the connection or the stream
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Content::Client(body) => body.is_end_stream(),
            Content::Again(bytes) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Content::Client(body) => body.size_hint(),
            Content::Again(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::task::Waker;

    use futures_util::stream;
    use http::HeaderMap;
    use http_body_util::{Full, StreamBody};

    use super::*;

    fn upload<B: Body>(body: B, announced: Option<u64>) -> (Upload<B>, Progress) {
        let upload = Upload::new(body, announced, Instant::now());
        let progress = upload.progress().unwrap();
        (upload, progress)
    }

    fn poll<B: Body + Unpin>(
        upload: &mut Upload<B>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(upload).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_request_is_sent_with_the_last_frame_that_hyper_takes() {
        let data = || Frame::data(Bytes::from_static(b"12345"));
        let trailers = Frame::trailers(HeaderMap::new());
        for (frames, announced, has_ended) in [
            (vec![data()], Some(5), true),
            (vec![data()], Some(6), false),
            (vec![data(), data()], Some(10), true),
            (vec![data()], None, false),
            (vec![data(), trailers], None, true),
        ] {
            let count = frames.len();
            let frames = frames.into_iter().map(Ok::<_, Infallible>);
            let (mut upload, progress) = upload(StreamBody::new(stream::iter(frames)), announced);
            for _ in 0..count {
                assert!(matches!(poll(&mut upload), Poll::Ready(Some(Ok(_)))));
            }
            assert_eq!(progress.has_ended(), has_ended, "{count} {announced:?}");
        }
    }

    #[test]
    fn a_body_that_hyper_never_asks_for_is_sent() {
        let body = StreamBody::new(stream::empty::<Result<Frame<Bytes>, Infallible>>());
        let (upload, progress) = upload(body, None);
        assert!(!progress.has_ended());
        drop(upload);
        assert!(progress.has_ended());
    }

    #[test]
    fn a_body_that_was_taken_whole_is_sent_again() {
        let data = |text: &'static str| Frame::data(Bytes::from(text));
        let frames = [data("one"), data("two")].map(Ok::<_, Infallible>);
        let (mut upload, progress) = upload(StreamBody::new(stream::iter(frames)), Some(6));
        assert!(poll(&mut upload).is_ready());
        assert!(progress.again::<Full<Bytes>>().is_none());
        assert!(poll(&mut upload).is_ready());
        let mut again = progress.again::<Full<Bytes>>().unwrap();
        assert!(!progress.has_ended());
        let Poll::Ready(Some(Ok(frame))) = poll(&mut again) else {
            panic!("there is no body");
        };
        assert_eq!(frame.into_data().unwrap(), "onetwo");
        assert!(progress.has_ended() && again.is_end_stream());
        assert!(poll(&mut again).is_ready());
        assert!(progress.again::<Full<Bytes>>().is_some());
        drop(upload);
    }

    #[test]
    fn only_small_bodies_are_kept() {
        for (length, is_kept) in [(KEEP_LIMIT, true), (KEEP_LIMIT + 1, false)] {
            let body = Full::new(Bytes::from(vec![0; length]));
            let (mut upload, progress) = upload(body, Some(length as u64));
            assert!(poll(&mut upload).is_ready());
            assert_eq!(progress.again::<Full<Bytes>>().is_some(), is_kept);
        }
    }
}
