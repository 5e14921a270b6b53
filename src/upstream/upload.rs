//! The progress of a request's body to its endpoint.
//!
//! An answer that does not come while the body is being sent may be the fault of the client, which has stopped sending,
//! or of the endpoint, which has stopped reading. An [`Upload`] is the body as hyper reads it; it records which of the
//! two is awaited. A [`Sending`] is the view of it that [`Forward`](super::Forward) keeps.

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
    /// A request's body, as hyper reads it.
    pub(super) struct Upload<B> {
        #[pin]
        body: B,
        progress: Option<Progress>,
        // How many bytes hyper still takes, if the length was announced.
        left: Option<u64>,
        is_polled: bool,
    }

    impl<B> PinnedDrop for Upload<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // Never asked for: none of it is on its way.
            if !*this.is_polled && let Some(progress) = this.progress {
                progress.forget_pieces();
                progress.take(true);
            }
        }
    }
}

/// The progress of a body, shared by its [`Upload`] and its [`Sending`].
#[derive(Debug, Clone)]
struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// When hyper last took a piece. `None` while it asks for more than the client has sent.
    taken: Option<Instant>,
    /// When hyper had all of the body.
    ended: Option<LogicalTime>,
    /// The pieces that hyper took, to send them again. `None` if they are not kept.
    pieces: Option<Vec<Bytes>>,
}

/// Larger bodies are not kept to be sent again. The default of `retry_body_limit_bytes`.
pub(super) const KEEP_LIMIT: usize = 1 << 20;

impl Progress {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            taken: Some(Instant::now()),
            ended: None,
            pieces: Some(Vec::new()),
        })))
    }

    /// Keeps a piece that hyper takes, unless the body is too large by now.
    fn keep(&self, piece: &Bytes) {
        let mut state = self.lock();
        let Some(pieces) = &mut state.pieces else {
            return;
        };
        let length: usize = pieces.iter().map(Bytes::len).sum();
        match length + piece.len() <= KEEP_LIMIT {
            true => pieces.push(piece.clone()),
            false => state.pieces = None,
        }
    }

    fn forget_pieces(&self) {
        self.lock().pieces = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// hyper has taken a piece, `all` of the body with it or not.
    fn take(&self, all: bool) {
        let mut state = self.lock();
        state.taken = Some(Instant::now());
        if all {
            state.ended.get_or_insert_with(LogicalTime::now);
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
        // `Bytes` are passed on as they are.
        let into_bytes = |mut data: B::Data| data.copy_to_bytes(data.remaining());
        let frame = frame.map_ok(|frame| frame.map_data(into_bytes));
        let Some(progress) = this.progress else {
            return frame;
        };
        match &frame {
            Poll::Pending => progress.lock().taken = None,
            Poll::Ready(Some(Ok(frame))) => {
                match frame.data_ref() {
                    Some(piece) => progress.keep(piece),
                    None => progress.forget_pieces(), // trailers are not sent again
                }
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                *this.left = this.left.map(|left| left.saturating_sub(length));
                // hyper does not poll again after the announced length.
                let counted = *this.left == Some(0);
                progress.take(counted || frame.is_trailers() || this.body.is_end_stream());
            }
            Poll::Ready(None) => progress.take(true),
            Poll::Ready(Some(Err(_))) => {} // not ended: the connection is closed
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

/// A request's body that may not be all sent. Dropping this closes the connection if it is not: an endpoint is sent
/// nothing more of a request that has given its slot back.
#[derive(Debug)]
pub(super) struct Sending {
    progress: Progress,
    connection: Carrier,
}

/// The connection that carries a request.
#[derive(Debug)]
enum Carrier {
    /// Not needed: the kernel takes a small body at once, so that it never keeps hyper from closing.
    Unknown,
    /// Known once hyper has chosen one.
    Captured(CaptureConnection),
    Known(ConnectionHandle),
}

/// How many bytes a connection takes at least before the endpoint reads any.
const TAKEN_AT_ONCE: u64 = 16 << 10;

/// Records the progress of a request's body. `None` if it has no body.
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

/// What was being sent on `connection`. `None` if all of it is sent.
pub(super) fn unsent(
    sending: Option<Sending>,
    connection: Option<ConnectionHandle>,
) -> Option<Sending> {
    let (mut sending, connection) = sending.zip(connection)?;
    sending.connection = Carrier::Known(connection);
    sending.progress.forget_pieces(); // there is an answer, or none will come
    (!sending.is_over()).then_some(sending)
}

impl Sending {
    /// When the endpoint will have been awaited for `limit`. `None` if that is beyond the end of the clock. While the
    /// client is awaited, this moves with the clock.
    pub(super) fn late_at(&self, limit: Duration) -> Option<Instant> {
        let taken = self.progress.lock().taken;
        taken.unwrap_or_else(Instant::now).checked_add(limit)
    }

    /// Takes the whole body, to send it again. `None` if hyper has not taken all of it, or it was too large to be kept.
    pub(super) fn take_whole(&self) -> Option<Vec<Bytes>> {
        let mut state = self.progress.lock();
        state.ended?;
        state.pieces.take()
    }

    fn is_over(&self) -> bool {
        let Some(ended) = self.progress.lock().ended else {
            return false;
        };
        // The connection may carry the next request by now; what that has not written yet does not count.
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
