//! The bodies of requests and responses, which mark their waits for the client.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tower_triage::openai::BodyMemory;
use tower_triage::rejection::drain;

use super::activity::Served;
use super::exchange::Exchange;
use super::unread::UnreadWindow;
use crate::answer_memory::AnswerShare;

/// The largest piece of a response over HTTP/2, in bytes. A slow client makes progress by the piece.
const LARGEST_PIECE: usize = 16 << 10;

/// The largest piece of a response over HTTP/1, in bytes. The connection copies a piece at once, whatever its size.
const LARGEST_COPY: usize = 64 << 10;

/// The body of a client's request.
#[derive(Debug)]
pub(crate) struct ClientBody {
    /// `None` once it is dropped.
    body: Option<Incoming>,
    /// `true` if it is drained when it is dropped, because nobody has read from it.
    is_drained: bool,
    /// The beginning that was read ahead, and is read again.
    ahead: Bytes,
    exchange: Arc<Exchange>,
    /// The memory of the bytes that are here unread; HTTP/2 only.
    unread: Option<UnreadWindow>,
}

impl ClientBody {
    /// Creates the body of a request. The bytes that are here unread count in `memory`.
    pub(super) fn new(
        body: Incoming,
        is_drained: bool,
        exchange: &Arc<Exchange>,
        memory: Option<&BodyMemory>,
    ) -> Self {
        let memory = memory.filter(|_| !body.is_end_stream());
        Self {
            body: Some(body),
            is_drained,
            ahead: Bytes::new(),
            exchange: Arc::clone(exchange),
            unread: memory.map(UnreadWindow::new),
        }
    }

    /// Counts the bytes that may be here of a body that waits unread. Returns `false` if the memory of all bodies has no room for
    /// them, so that the request has to be refused.
    pub(crate) fn may_wait_unread(&mut self) -> bool {
        match (&self.body, &mut self.unread) {
            (Some(body), Some(unread)) => unread.try_hold(body),
            _ => true,
        }
    }

    /// Reads the whole body, whose reader then gets it again, even if this is dropped in the middle.
    pub(crate) async fn read_ahead(&mut self) -> Result<Bytes, hyper::Error> {
        while let Some(frame) = poll_fn(|cx| self.poll_unread(cx)).await {
            if let Ok(piece) = frame?.into_data() {
                self.ahead = match self.ahead.is_empty() {
                    true => piece,
                    false => [&*self.ahead, &piece].concat().into(),
                };
            }
        }
        Ok(self.ahead.clone())
    }

    /// Reads on where no reader has been.
    fn poll_unread(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.is_drained = false; // its reader decides
        let Self {
            body: Some(body),
            unread,
            exchange,
            ..
        } = &mut *self
        else {
            return Poll::Ready(None);
        };
        let frame = Pin::new(&mut *body).poll_frame(cx);
        match &frame {
            Poll::Pending => exchange.upload.wait(),
            Poll::Ready(Some(Ok(_))) => exchange.upload.go_on(),
            Poll::Ready(_) => exchange.uploaded(),
        }
        match (&frame, unread) {
            (Poll::Ready(Some(Ok(_))), Some(unread)) if !body.is_end_stream() => {
                unread.on_piece(body);
            }
            (_, Some(unread)) => unread.on_awaited(),
            (_, None) => {}
        }
        frame
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if !self.ahead.is_empty() {
            let ahead = std::mem::take(&mut self.ahead);
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        self.poll_unread(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_empty() && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        let mut hint = self.body.as_ref().map_or_else(empty, Body::size_hint);
        let ahead = self.ahead.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + ahead);
        }
        hint.set_lower(hint.lower() + ahead);
        hint
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
        // The part of the last piece that is still to be sent.
        rest: Bytes,
        // The share of the memory of what is to be sent. `None` over HTTP/1.
        unsent: Option<AnswerShare>,
        // `true` if the client takes the end of the connection for the end of the body.
        ends_with_connection: bool,
        served: Served,
    }
}

impl<B: Body> ServedBody<B> {
    /// Wraps the body of a response to a client that speaks `version`.
    pub(super) fn new(
        body: Option<B>,
        version: Version,
        unsent: Option<AnswerShare>,
        served: Served,
    ) -> Self {
        let has_length = |body: &B| body.is_end_stream() || body.size_hint().exact().is_some();
        let ends_with_connection =
            version == Version::HTTP_10 && !body.as_ref().is_none_or(has_length);
        if ends_with_connection {
            served.ends_with_connection(true);
        }
        // The client has yet to take the first piece.
        served.exchange.download.wait();
        Self {
            body,
            rest: Bytes::new(),
            unsent,
            ends_with_connection,
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
        let Some(unsent) = this.unsent else {
            if !this.rest.is_empty() {
                let piece = this.rest.split_to(this.rest.len().min(LARGEST_COPY));
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let frame = body.poll_frame(cx);
            if let Poll::Ready(Some(Ok(frame))) = frame {
                return Poll::Ready(Some(Ok(first_of(frame, LARGEST_COPY, this.rest))));
            }
            if *this.ends_with_connection && matches!(frame, Poll::Ready(None)) {
                this.served.ends_with_connection(false);
            }
            return frame;
        };
        if unsent.poll_room(cx).is_pending() {
            return Poll::Pending; // still a wait for the client
        }
        // The client has room for more. The server asks again at once, so a wait that follows is for the client.
        this.served.exchange.download.go_on();
        if !this.rest.is_empty() {
            this.served.exchange.download.wait();
            let piece = this.rest.split_to(this.rest.len().min(LARGEST_PIECE));
            return Poll::Ready(Some(Ok(Frame::data(unsent.count(piece)))));
        }
        let frame = ready!(body.poll_frame(cx));
        this.served.exchange.download.wait();
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                let frame = first_of(frame, LARGEST_PIECE, this.rest);
                frame.map_data(|piece| unsent.count(piece))
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        // An answer that ends with its connection is polled to its end, which takes off the mark of a cut one.
        !self.ends_with_connection
            && self.rest.is_empty()
            && self.body.as_ref().is_none_or(Body::is_end_stream)
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

/// Returns a frame with at most `largest` bytes, and sets `rest` to the others.
fn first_of(frame: Frame<Bytes>, largest: usize, rest: &mut Bytes) -> Frame<Bytes> {
    frame.map_data(|mut piece| {
        if piece.len() > largest {
            *rest = piece.split_off(largest);
        }
        piece
    })
}
