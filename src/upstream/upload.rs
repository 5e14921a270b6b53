//! While a request's body is on its way, an answer that does not come may be the fault of the client, which has
//! stopped sending, as well as of the endpoint, which has stopped reading.
//!
//! An [`Upload`] is the body as hyper takes it; it notes which of the two is awaited. A [`Sending`] is what its
//! [`Forward`](super::Forward) keeps of it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http::Request;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::connection::{ConnectionHandle, LogicalTime};

pin_project! {
    /// A request's body on its way to an endpoint.
    pub(super) struct Upload<B> {
        #[pin]
        body: B,
        progress: Option<Progress>,
        // What hyper still takes of it, if its length was announced.
        left: Option<u64>,
        is_polled: bool,
    }

    impl<B> PinnedDrop for Upload<B> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // hyper sends no body of unknown length with a GET.
            if !*this.is_polled && let Some(progress) = this.progress {
                progress.end();
            }
        }
    }
}

/// How far a body has come.
#[derive(Debug, Clone)]
struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// The client has yet to send something that the endpoint has room for.
    client_awaited: bool,
    /// When hyper had all of it.
    ended: Option<LogicalTime>,
    /// When it went on last.
    since: Instant,
}

impl Progress {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            client_awaited: false,
            ended: None,
            since: Instant::now(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn went_on(&self) {
        let mut state = self.lock();
        state.client_awaited = false;
        state.since = Instant::now();
    }

    fn end(&self) {
        self.went_on();
        self.lock().ended.get_or_insert_with(LogicalTime::now);
    }
}

impl<B: Body> Body for Upload<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        *this.is_polled = true;
        let frame = this.body.as_mut().poll_frame(cx);
        let Some(progress) = this.progress else {
            return frame;
        };
        match &frame {
            Poll::Pending => progress.lock().client_awaited = true,
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, |data| data.remaining() as u64);
                *this.left = this.left.map(|left| left.saturating_sub(length));
                if *this.left == Some(0) || frame.is_trailers() || this.body.is_end_stream() {
                    progress.end();
                } else {
                    progress.went_on();
                }
            }
            Poll::Ready(None) => progress.end(),
            Poll::Ready(Some(Err(_))) => {}
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

/// A request whose body is perhaps not all sent. Dropping it before that closes the connection: an endpoint
/// whose slot is free is sent nothing more.
#[derive(Debug)]
pub(super) struct Sending {
    progress: Progress,
    connection: Carrier,
}

/// The connection that carries a request.
#[derive(Debug)]
enum Carrier {
    /// What is sent of so small a body is with the kernel at once, and holds no connection up that hyper closes.
    Unknown,
    Captured(CaptureConnection),
    Known(ConnectionHandle),
}

/// A connection takes at least so much without its being read.
const TAKEN_AT_ONCE: u64 = 16 << 10;

/// Makes a request's body one whose progress is known, if it has one.
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

impl Sending {
    /// Goes on with the connection that has turned out to carry the request. Nothing is left if all is sent.
    pub(super) fn carried_by(mut self, connection: ConnectionHandle) -> Option<Self> {
        self.connection = Carrier::Known(connection);
        (!self.is_over()).then_some(self)
    }

    /// When the endpoint will have been awaited for `limit`, if the client sends nothing more until then.
    pub(super) fn late_at(&self, limit: Duration) -> Option<Instant> {
        let state = self.progress.lock();
        let since = match state.client_awaited {
            true => Instant::now(),
            false => state.since,
        };
        since.checked_add(limit)
    }

    fn is_over(&self) -> bool {
        let Some(ended) = self.progress.lock().ended else {
            return false;
        };
        // Its answer may be read and the connection be used again before this is asked: what the next request has
        // not written yet does not count.
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
    use std::pin::pin;
    use std::task::Waker;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::rt::Write;
    use hyper_util::rt::TokioIo;

    use super::super::connection::Connection;
    use super::*;

    #[test]
    fn a_request_that_is_sent_does_not_close_the_connection_of_the_next() {
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
            let sending = sending.unwrap().carried_by(handle);
            assert!(sending.is_none(), "{length}");
            write(false);
        }
    }
}
