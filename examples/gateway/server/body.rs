//! The bodies of requests and responses, which mark their waits for the client.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use super::activity::Served;
use super::drain::drain;
use super::exchange::Exchange;

/// The largest piece of a response over HTTP/2, in bytes. A slow client makes progress by the piece.
const LARGEST_PIECE: usize = 16 << 10;

/// The body of a client's request.
#[derive(Debug)]
pub(crate) struct ClientBody {
    /// `None` once it is dropped.
    body: Option<Incoming>,
    /// `true` if it is drained when it is dropped, because nobody has read from it.
    is_drained: bool,
    exchange: Arc<Exchange>,
}

impl ClientBody {
    pub(super) fn new(body: Incoming, is_drained: bool, exchange: &Arc<Exchange>) -> Self {
        Self {
            body: Some(body),
            is_drained,
            exchange: Arc::clone(exchange),
        }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.is_drained = false; // its reader decides
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = Pin::new(body).poll_frame(cx);
        match &frame {
            Poll::Pending => self.exchange.upload.wait(),
            Poll::Ready(Some(Ok(_))) => self.exchange.upload.go_on(),
            Poll::Ready(_) => self.exchange.uploaded(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        self.body.as_ref().map_or_else(empty, Body::size_hint)
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        self.exchange.uploaded();
        if self.is_drained && !self.exchange.is_late() {
            self.body.take().into_iter().for_each(drain);
        }
    }
}

pin_project! {
    /// The body of a response. Its request has ended when it is dropped.
    pub(super) struct ServedBody<B> {
        // `None` if nothing follows the head.
        #[pin]
        body: Option<B>,
        // The part of the last piece that is still to be sent; HTTP/2 only.
        rest: Bytes,
        is_http2: bool,
        served: Served,
    }
}

impl<B> ServedBody<B> {
    pub(super) fn new(body: Option<B>, is_http2: bool, served: Served) -> Self {
        // The client has yet to take the first piece.
        served.exchange.download.wait();
        Self {
            body,
            rest: Bytes::new(),
            is_http2,
            served,
        }
    }
}

impl<B: Body<Data = Bytes>> Body for ServedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let Some(body) = this.body.as_pin_mut() else {
            return Poll::Ready(None);
        };
        if !*this.is_http2 {
            return body.poll_frame(cx);
        }
        // The client has room for more. The server asks again at once, so a wait that follows is for the client.
        this.served.exchange.download.go_on();
        if !this.rest.is_empty() {
            this.served.exchange.download.wait();
            let piece = this.rest.split_to(this.rest.len().min(LARGEST_PIECE));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let frame = ready!(body.poll_frame(cx));
        this.served.exchange.download.wait();
        let frame = frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|mut piece| {
                    *this.rest = piece.split_off(piece.len().min(LARGEST_PIECE));
                    piece
                })
            })
        });
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        let mut hint = self.body.as_ref().map_or_else(empty, Body::size_hint);
        let rest = self.rest.len() as u64;
        let (lower, upper) = (hint.lower(), hint.upper());
        if let Some(upper) = upper {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(lower + rest);
        hint
    }
}
