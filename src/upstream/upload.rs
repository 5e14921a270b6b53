//! The progress of a request's body to its endpoint.
//!
//! If an answer does not come while the body is being sent, the cause may be the client, which has stopped sending, or
//! the endpoint, which has stopped reading. An [`Upload`] is the body as hyper reads it, and its [`Progress`] records
//! which of the two is awaited. It also keeps a small body, so that the request can be sent again.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::headers::strip_trailers;

/// The body of a request as hyper reads it.
pub(super) struct Upload<B> {
    body: Content<B>,
    progress: Option<Progress>,
    /// The number of bytes that hyper still takes. `None` unless the length was announced.
    left: Option<u64>,
    is_polled: bool,
    /// The largest piece that hyper gets at once, in bytes.
    largest_piece: usize,
    /// The rest of a larger piece, which hyper gets next.
    rest: Bytes,
    /// The names of the request's headers, which its trailers must not have.
    sent: Box<[HeaderName]>,
}

type BoxError = Box<dyn Error + Send + Sync>;

enum Content<B> {
    /// Boxed, because some bodies, such as those of `tower_http`'s timeouts, must not move once they are polled.
    Client(Pin<Box<B>>),
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
    /// `true` once all of the body has come from the client.
    is_whole: bool,
    /// `true` once hyper has all of the body.
    has_ended: bool,
    /// `true` once the client's body has failed.
    has_failed: bool,
    /// The part of the body that has come, so that it can be sent again. `None` if it is not kept.
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

/// The largest number of pieces after the first one that are kept. A tiny piece takes more memory than its bytes.
const MAX_PIECES: usize = 1024;

impl Kept {
    /// Adds a piece. Returns `None` if the body is larger than [`KEEP_LIMIT`] then, or has more than [`MAX_PIECES`].
    fn with(mut self, piece: &Bytes) -> Option<Self> {
        match self.length {
            0 => self.first = piece.clone(),
            _ => self.others.push(piece.clone()),
        }
        self.length += piece.len();
        (self.length <= KEEP_LIMIT && self.others.len() <= MAX_PIECES).then_some(self)
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
            is_whole: false,
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

    /// Returns the whole body, to send it again. Returns `None` if a part of it has not come from the client, or if the body
    /// was too large to be kept.
    pub(super) fn again<B>(&self) -> Option<Upload<B>> {
        let mut state = self.lock();
        if !state.is_whole {
            return None;
        }
        let body = state.kept.take()?.join();
        state.kept = Some(Kept::default()); // it is kept anew while it is sent again
        (state.is_whole, state.has_ended) = (false, false);
        drop(state);
        let left = Some(body.len() as u64);
        let progress = Some(self.clone());
        Some(Upload::of(Content::Again(body), progress, left))
    }
}

impl State {
    /// Keeps a piece of the body. A body with trailers, or larger than [`KEEP_LIMIT`], is not kept.
    fn keep(&mut self, piece: Option<&Bytes>) {
        let kept = self.kept.take().zip(piece);
        self.kept = kept.and_then(|(kept, piece)| kept.with(piece));
    }

    /// Records that hyper has all of the body.
    fn end(&mut self) {
        self.taken = Some(Instant::now());
        (self.is_whole, self.has_ended) = (true, true);
    }
}

impl<B: Body> Upload<B> {
    /// Creates the body of a request that is sent at `now`, of which `announced` is the length, if it is known. A body that
    /// ends before this length fails, because the endpoint would take it for a whole one, or for an error of the connection.
    pub(super) fn new(body: B, announced: Option<u64>, now: Instant) -> Self {
        let has_body = !body.is_end_stream() || announced.is_some_and(|length| length > 0);
        let progress = has_body.then(|| Progress::new(now));
        Self::of(Content::Client(Box::pin(body)), progress, announced)
    }
}

impl<B> Upload<B> {
    fn of(body: Content<B>, progress: Option<Progress>, left: Option<u64>) -> Self {
        Self {
            body,
            progress,
            left,
            is_polled: false,
            largest_piece: usize::MAX,
            rest: Bytes::new(),
            sent: Box::default(),
        }
    }

    /// Creates an empty body.
    pub(super) fn empty() -> Self {
        Self::of(Content::Again(Bytes::new()), None, None)
    }

    /// Removes the trailers that have the name of a header.
    pub(super) fn without_trailers_of(mut self, headers: &HeaderMap) -> Self {
        self.sent = headers.keys().cloned().collect();
        self
    }

    /// Hands the body over in pieces of at most `bytes`.
    pub(super) fn in_pieces_of(mut self, bytes: usize) -> Self {
        self.largest_piece = bytes;
        self
    }

    /// Takes the next part of a piece that was too large.
    fn next_part(&mut self) -> Bytes {
        let length = self.rest.len().min(self.largest_piece);
        let part = self.rest.split_to(length);
        if let Some(progress) = &self.progress {
            let mut state = progress.lock();
            state.taken = Some(Instant::now());
            state.has_ended = state.is_whole && self.rest.is_empty();
        }
        part
    }

    /// Returns `true` if the body has less than its announced length.
    fn is_short(&self) -> bool {
        self.left.is_some_and(|left| left > 0)
    }

    /// Returns the progress of the body, or `None` if the request has no body.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.progress.clone()
    }
}

impl<B: Body> Content<B> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self {
            Self::Client(body) => {
                // If the data is already `Bytes`, this passes it on without a copy.
                let into_bytes = |mut data: B::Data| data.copy_to_bytes(data.remaining());
                let frame = body.as_mut().poll_frame(cx);
                frame.map_ok(|frame| frame.map_data(into_bytes))
            }
            Self::Again(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Again(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
        }
    }
}

impl<B: Body<Error: Into<BoxError>>> Upload<B> {
    #[cold]
    fn stripped(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_trailers() {
            Ok(mut trailers) => {
                strip_trailers(&mut trailers, &self.sent);
                Frame::trailers(trailers)
            }
            Err(frame) => frame,
        }
    }

    /// Records a frame that the body has given. Returns the part of it that hyper gets now.
    fn on_frame(&mut self, frame: Frame<Bytes>, is_first: bool) -> Frame<Bytes> {
        let frame = match frame.is_trailers() {
            true => self.stripped(frame),
            false => frame,
        };
        let is_over = self.is_end_stream(); // asked without the lock, because this is a caller's code
        let Some(progress) = &self.progress else {
            return frame;
        };
        let mut state = progress.lock();
        state.keep(frame.data_ref());
        let length = frame.data_ref().map_or(0, Bytes::len);
        self.left = self.left.map(|left| left.saturating_sub(length as u64));
        // hyper does not poll again after the announced length, so the end is recognised by counting.
        let counted = self.left == Some(0);
        state.is_whole |= counted || frame.is_trailers() || is_over;
        let is_too_large = length > self.largest_piece;
        state.has_ended = state.is_whole && !is_too_large;
        // hyper takes the first piece at once, so that needs no look at the clock.
        if !is_first {
            state.taken = Some(Instant::now());
        }
        if !is_too_large {
            return frame;
        }
        frame.map_data(|mut data| {
            self.rest = data.split_off(self.largest_piece);
            data
        })
    }
}

impl<B> Body for Upload<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.next_part()))));
        }
        let is_first = !std::mem::replace(&mut this.is_polled, true);
        let frame = match this.body.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) if !(frame.is_trailers() && this.is_short()) => {
                return Poll::Ready(Some(Ok(this.on_frame(frame, is_first))));
            }
            Poll::Ready(None | Some(Ok(_))) if this.is_short() => {
                Poll::Ready(Some(Err("the body is shorter than announced".into())))
            }
            frame => frame.map_err(Into::into),
        };
        if let Some(progress) = &this.progress {
            let mut state = progress.lock();
            match &frame {
                Poll::Pending => state.taken = None,
                Poll::Ready(None) => state.end(),
                Poll::Ready(Some(_)) => state.has_failed = true, // hyper closes the connection or the stream
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = match &self.body {
            Content::Client(body) => body.is_end_stream(),
            Content::Again(bytes) => bytes.is_empty(),
        };
        has_ended && self.rest.is_empty() && !self.is_short()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            _ if !self.rest.is_empty() => SizeHint::default(),
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

    fn poll<B>(upload: &mut Upload<B>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>
    where
        B: Body<Error: Into<BoxError>>,
    {
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
    fn a_body_shorter_than_announced_fails() {
        let data = || Frame::data(Bytes::from_static(b"12345"));
        let trailers = Frame::trailers(HeaderMap::new());
        for frames in [vec![], vec![data()], vec![data(), trailers]] {
            let count = frames.len();
            let frames = frames.into_iter().map(Ok::<_, Infallible>);
            let (mut upload, progress) = upload(StreamBody::new(stream::iter(frames)), Some(6));
            for _ in 0..count.min(1) {
                assert!(matches!(poll(&mut upload), Poll::Ready(Some(Ok(_)))));
            }
            assert!(!upload.is_end_stream());
            assert!(matches!(poll(&mut upload), Poll::Ready(Some(Err(_)))));
            assert!(progress.has_failed() && !progress.has_ended(), "{count}");
        }
        let (empty, _) = upload(Full::<Bytes>::default(), Some(6));
        assert!(!empty.is_end_stream());
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
    fn a_large_piece_is_handed_over_in_parts() {
        let (large, progress) = upload(Full::<Bytes>::from("sixsix12345"), None);
        let mut large = large.in_pieces_of(3);
        for part in ["six", "six", "123", "45"] {
            assert!(!progress.has_ended() && !large.is_end_stream());
            let Poll::Ready(Some(Ok(frame))) = poll(&mut large) else {
                panic!("{part} is missing");
            };
            assert_eq!(frame.into_data().unwrap(), part);
        }
        assert!(progress.has_ended() && large.is_end_stream());
    }

    #[tokio::test(start_paused = true)]
    async fn each_part_starts_the_time_of_the_endpoint_again() {
        let limit = Duration::from_secs(1);
        let (upload, progress) = upload(Full::<Bytes>::from("123456789"), None);
        let mut upload = upload.in_pieces_of(3);
        for _ in 0..3 {
            assert!(poll(&mut upload).is_ready());
            assert_eq!(progress.late_at(limit), Some(Instant::now() + limit));
            tokio::time::advance(limit).await;
        }
    }

    #[test]
    fn a_body_of_which_a_part_was_taken_is_sent_again() {
        let (upload, progress) = upload(Full::<Bytes>::from("sixsix"), Some(6));
        let mut upload = upload.in_pieces_of(3);
        assert!(poll(&mut upload).is_ready());
        drop(upload);
        let mut again = progress.again::<Full<Bytes>>().unwrap();
        let Poll::Ready(Some(Ok(frame))) = poll(&mut again) else {
            panic!("there is no body");
        };
        assert_eq!(frame.into_data().unwrap(), "sixsix");
    }

    #[test]
    fn a_body_of_too_many_pieces_is_not_kept() {
        let piece = Bytes::from_static(b"x");
        let all = |count| (0..count).try_fold(Kept::default(), |kept, _| kept.with(&piece));
        assert_eq!(all(MAX_PIECES + 1).unwrap().join().len(), MAX_PIECES + 1);
        assert!(all(MAX_PIECES + 2).is_none());
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
