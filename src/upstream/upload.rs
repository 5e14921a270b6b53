//! The progress of a request's body to its endpoint.
//!
//! If an answer does not come while the body is being sent, the cause may be the client, which has stopped sending, or
//! the endpoint, which has stopped reading. An [`Upload`] is the body as hyper reads it, and it records which of the
//! two is awaited. A [`Sending`] is the view of the upload that [`Forward`](super::Forward) keeps.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::Request;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::connection::{ConnectionHandle, LogicalTime};

pin_project! {
    /// The body of a request as hyper reads it.
    pub(super) struct Upload<B> {
        #[pin]
        body: B,
        progress: Option<Progress>,
        // The number of bytes that hyper still takes. `None` unless the length was announced.
        left: Option<u64>,
        is_polled: bool,
    }

    impl<B> PinnedDrop for Upload<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // hyper never asked for the body, so all of it stayed here.
            if !*this.is_polled && let Some(progress) = this.progress {
                let mut state = progress.lock();
                state.pieces = None;
                state.take(true);
            }
        }
    }
}

/// The progress of a body, which its [`Upload`] and its [`Sending`] share.
#[derive(Debug, Clone)]
struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The time at which hyper last took a piece. `None` while hyper asks for more than the client has sent.
    taken: Option<Instant>,
    /// The time at which hyper had all of the body. `None` before that.
    ended: Option<LogicalTime>,
    /// The pieces that hyper took, so that they can be sent again. `None` if they are not kept.
    pieces: Option<Vec<Bytes>>,
}

/// The largest body in bytes that is kept to be sent again. It equals the default of `retry_body_limit_bytes`.
pub(super) const KEEP_LIMIT: usize = 1 << 20;

impl Progress {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            taken: Some(Instant::now()),
            ended: None,
            pieces: Some(Vec::new()),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Keeps a piece that hyper takes. A body with trailers, or larger than [`KEEP_LIMIT`], is not kept.
    fn keep(&mut self, piece: Option<&Bytes>) {
        self.pieces = self
            .pieces
            .take()
            .zip(piece)
            .and_then(|(mut pieces, piece)| {
                let length: usize = pieces.iter().map(Bytes::len).sum();
                pieces.push(piece.clone());
                (length + piece.len() <= KEEP_LIMIT).then_some(pieces)
            });
    }

    /// Records that hyper has taken a piece. `all` is `true` if this was the last one.
    fn take(&mut self, all: bool) {
        self.taken = Some(Instant::now());
        if all {
            self.ended.get_or_insert_with(LogicalTime::now);
        }
    }
}

impl<B: Body> Body for Upload<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        *this.is_polled = true;
        let frame = this.body.as_mut().poll_frame(cx);
        // If the data is already `Bytes`, this passes it on without a copy.
        let into_bytes = |mut data: B::Data| data.copy_to_bytes(data.remaining());
        let frame = frame.map_ok(|frame| frame.map_data(into_bytes));
        let Some(progress) = this.progress else {
            return frame;
        };
        // Asked without the lock, because this is a caller's code, and not after the body's end.
        let is_over = matches!(frame, Poll::Ready(Some(Ok(_)))) && this.body.is_end_stream();
        let mut state = progress.lock();
        match &frame {
            Poll::Pending => state.taken = None,
            Poll::Ready(Some(Ok(frame))) => {
                state.keep(frame.data_ref());
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                *this.left = this.left.map(|left| left.saturating_sub(length));
                // hyper does not poll again after the announced length, so the end is recognised by counting.
                let counted = *this.left == Some(0);
                state.take(counted || frame.is_trailers() || is_over);
            }
            Poll::Ready(None) => state.take(true),
            Poll::Ready(Some(Err(_))) => {} // not ended: hyper closes the connection
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A request's body that may not be fully sent. Dropping this value closes the connection if a part is unsent, because
/// an endpoint must get nothing more of a request that has given its slot back.
#[derive(Debug)]
pub(super) struct Sending {
    progress: Progress,
    connection: Carrier,
}

/// The connection that carries a request.
#[derive(Debug)]
enum Carrier {
    /// The connection is not needed, because the kernel takes a small body at once. So the body cannot keep hyper from
    /// closing.
    Unknown,
    /// The connection is known once hyper has chosen one.
    Captured(CaptureConnection),
    Known(ConnectionHandle),
}

/// The least number of bytes that a connection takes before the endpoint has read any.
const TAKEN_AT_ONCE: u64 = 16 << 10;

/// Wraps a request so that the progress of its body is recorded. The second value is `None` if the request has no body.
pub(super) fn watched<B: Body>(request: Request<B>) -> (Request<Upload<B>>, Option<Sending>) {
    let has_body = !request.body().is_end_stream();
    let progress = has_body.then(Progress::new);
    let announced = request.headers().get(CONTENT_LENGTH);
    let left = announced.and_then(|length| length.to_str().ok()?.parse().ok());
    let is_small = matches!(request.body().size_hint().upper(), Some(..=TAKEN_AT_ONCE));
    let mut request = request.map(|body| Upload {
        body,
        progress: progress.clone(),
        left,
        is_polled: false,
    });
    let sending = progress.map(|progress| Sending {
        progress,
        connection: match is_small {
            true => Carrier::Unknown,
            false => Carrier::Captured(capture_connection(&mut request)),
        },
    });
    (request, sending)
}

/// Returns the rest of a body that is being sent on `connection`, or `None` if all of it is sent.
pub(super) fn unsent(
    sending: Option<Sending>,
    connection: Option<ConnectionHandle>,
) -> Option<Sending> {
    let (mut sending, connection) = sending.zip(connection)?;
    sending.connection = Carrier::Known(connection);
    sending.progress.lock().pieces = None; // an answer has come, or will not come at all
    (!sending.is_over()).then_some(sending)
}

impl Sending {
    /// Returns the time at which the endpoint will have been awaited for `limit`, or `None` if that is beyond the end
    /// of the clock. While the client is awaited, this time moves with the clock.
    pub(super) fn late_at(&self, limit: Duration) -> Option<Instant> {
        let taken = self.progress.lock().taken;
        taken.unwrap_or_else(Instant::now).checked_add(limit)
    }

    /// Takes the whole body, to send it again. Returns `None` if hyper has not taken all of it, or if the body was too
    /// large to be kept.
    pub(super) fn take_whole(&self) -> Option<Bytes> {
        let mut state = self.progress.lock();
        state.ended?;
        state.pieces.take().map(|pieces| pieces.concat().into())
    }

    /// Returns `true` if all of the body is on its way to the endpoint.
    fn is_over(&self) -> bool {
        let Some(ended) = self.progress.lock().ended else {
            return false;
        };
        // The connection may carry the next request by now, and its unwritten bytes must not count here.
        self.handle()
            .is_none_or(|handle| handle.is_flushed_since(ended))
    }

    fn handle(&self) -> Option<ConnectionHandle> {
        match &self.connection {
            Carrier::Unknown => None,
            Carrier::Captured(connection) => {
                let connected = connection.connection_metadata();
                connected.as_ref().and_then(ConnectionHandle::of)
            }
            Carrier::Known(handle) => Some(handle.clone()),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.is_over()
            && let Some(connection) = self.handle()
        {
            connection.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;
    use std::task::Waker;

    use futures_util::stream;
    use http::HeaderMap;
    use http_body_util::{Full, StreamBody};
    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncWrite;

    use super::super::connection::Connection;
    use super::*;

    #[test]
    fn a_sent_request_leaves_the_connection_open() {
        for length in [9, 1 << 20] {
            let (_endpoint, io) = tokio::io::duplex(64);
            let mut connection = Connection::new(TokioIo::new(io));
            let mut cx = Context::from_waker(Waker::noop());
            let body = Full::new(Bytes::from(vec![0; length]));
            let (request, sending) = watched(Request::new(body));
            let mut upload = pin!(request.into_body());
            assert!(upload.as_mut().poll_frame(&mut cx).is_ready());
            let mut write = |flushes: bool| {
                let mut connection = Pin::new(&mut connection);
                let written = connection.as_mut().poll_write(&mut cx, b"bytes");
                assert!(matches!(written, Poll::Ready(Ok(5))), "{written:?}");
                if flushes {
                    assert!(connection.as_mut().poll_flush(&mut cx).is_ready());
                }
                connection.handle()
            };
            write(true);
            let handle = write(false);
            let unsent = unsent(Some(sending.unwrap()), Some(handle));
            assert!(unsent.is_none(), "{length}");
            write(false);
        }
    }

    #[test]
    fn a_request_is_sent_with_the_last_frame_that_hyper_takes() {
        let data = || Frame::data(Bytes::from_static(b"12345"));
        let trailers = Frame::trailers(HeaderMap::new());
        for (frames, announced, is_over) in [
            (vec![data()], Some(5), true),
            (vec![data()], Some(6), false),
            (vec![data(), data()], Some(10), true),
            (vec![data()], None, false),
            (vec![data(), trailers], None, true),
        ] {
            let count = frames.len();
            let frames = frames.into_iter().map(Ok::<_, Infallible>);
            let mut request = Request::new(StreamBody::new(stream::iter(frames)));
            if let Some(length) = announced {
                request.headers_mut().insert(CONTENT_LENGTH, length.into());
            }
            let (request, sending) = watched(request);
            let mut upload = pin!(request.into_body());
            for _ in 0..count {
                let frame = upload
                    .as_mut()
                    .poll_frame(&mut Context::from_waker(Waker::noop()));
                assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
            }
            assert_eq!(sending.unwrap().is_over(), is_over, "{count} {announced:?}");
        }
    }

    #[test]
    fn a_body_that_hyper_never_asks_for_is_sent() {
        let body = StreamBody::new(stream::empty::<Result<Frame<Bytes>, Infallible>>());
        let (request, sending) = watched(Request::new(body));
        let sending = sending.unwrap();
        assert!(!sending.is_over());
        drop(request);
        assert!(sending.is_over());
    }
}
