//! The body of a request of which a part was read while the request waited.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::Limits;
use crate::http::{MemoryShare, RoomWait};

/// The body of a request behind a [`ReadAheadLayer`](super::ReadAheadLayer): what was read of it while the request waited, and
/// then the rest.
///
/// Lengths, trailers and errors are those of the body `B`. The frames of data that were read come as one.
pub struct ReadAheadBody<B: Body> {
    read: Read,
    /// The end of the body, if it was reached while the request waited.
    end: Option<End<B::Error>>,
    rest: B,
}

// Nothing is pinned in it but the body, which is `Unpin`.
impl<B: Body + Unpin> Unpin for ReadAheadBody<B> {}

/// The end of a body.
enum End<E> {
    Trailers(HeaderMap),
    Error(E),
    /// The body is over, and so is not polled again.
    Over,
}

/// The data that was read.
#[derive(Default)]
struct Read {
    data: Data,
    /// The part of the memory that the data uses. Dropped together with the data, or when that is passed on.
    held: Option<MemoryShare>,
}

enum Data {
    /// A single piece, which is passed on without a copy.
    One(Bytes),
    Many(BytesMut),
}

impl<B: Body> ReadAheadBody<B> {
    /// Creates a body of which nothing was read.
    pub(super) fn new(body: B) -> Self {
        Self {
            read: Read::default(),
            end: None,
            rest: body,
        }
    }

    /// Returns `true` if nothing is left to be read.
    fn has_ended(&self) -> bool {
        self.end.is_some() || self.rest.is_end_stream()
    }
}

impl<B: Body<Data = Bytes> + Unpin> ReadAheadBody<B> {
    /// Reads on until the body has ended, exceeds its limit, or has to wait for a piece or for memory. Resolves once nothing more
    /// of it is to be read before its request has a slot.
    pub(super) fn poll_ahead(
        &mut self,
        limits: &Limits,
        blocked: &mut Option<RoomWait>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        while !self.has_ended() {
            let announced = usize::try_from(self.rest.size_hint().lower());
            let next = announced.unwrap_or(usize::MAX).max(1);
            // A body that does not fit as a whole would hold up its connection all the same.
            let whole = self.read.data.len().saturating_add(next);
            if whole > limits.max_body.min(limits.memory.limit()) {
                break;
            }
            ready!(limits.memory.poll_room(next, blocked, cx));
            match Pin::new(&mut self.rest).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => self.push(frame, limits),
                Poll::Ready(Some(Err(error))) => self.end = Some(End::Error(error)),
                Poll::Ready(None) => self.end = Some(End::Over),
                Poll::Pending => {
                    *blocked = None; // others may use the memory until the next piece comes
                    return Poll::Pending;
                }
            }
        }
        *blocked = None;
        Poll::Ready(())
    }

    fn push(&mut self, frame: Frame<Bytes>, limits: &Limits) {
        match frame.into_data() {
            Ok(data) => {
                let rest = self.rest.size_hint().exact();
                self.read.push(data, rest, limits);
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    self.end = Some(End::Trailers(trailers));
                }
            }
        }
    }
}

impl Read {
    /// Adds a piece. `rest` is the number of bytes that follow, if it is known.
    fn push(&mut self, piece: Bytes, rest: Option<u64>, limits: &Limits) {
        let held = self.held.get_or_insert_with(|| limits.memory.hold(0));
        // Room for one byte was there, and a piece is small. Refusing it would lose it.
        held.grow_beyond(piece.len());
        self.data.push(piece, rest);
    }

    /// Takes the data out, and gives its memory back.
    fn take(&mut self) -> Bytes {
        let Self { data, .. } = std::mem::take(self);
        match data {
            Data::One(bytes) => bytes,
            Data::Many(bytes) => bytes.freeze(),
        }
    }
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::One(bytes) => bytes.len(),
            Self::Many(bytes) => bytes.len(),
        }
    }

    fn push(&mut self, piece: Bytes, rest: Option<u64>) {
        match self {
            Self::One(first) if first.is_empty() => *self = Self::One(piece),
            Self::One(first) => {
                let length = first.len() + piece.len();
                let rest = rest.and_then(|rest| usize::try_from(rest).ok());
                let mut many = BytesMut::with_capacity(length.saturating_add(rest.unwrap_or(0)));
                many.extend_from_slice(first);
                many.extend_from_slice(&piece);
                *self = Self::Many(many);
            }
            Self::Many(many) => many.extend_from_slice(&piece),
        }
    }
}

impl Default for Data {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for ReadAheadBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if this.read.data.len() > 0 {
            return Poll::Ready(Some(Ok(Frame::data(this.read.take()))));
        }
        match this.end.take() {
            None => Pin::new(&mut this.rest).poll_frame(cx),
            Some(end) => {
                this.end = Some(End::Over);
                Poll::Ready(match end {
                    End::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
                    End::Error(error) => Some(Err(error)),
                    End::Over => None,
                })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = match &self.end {
            None => self.rest.is_end_stream(),
            Some(End::Over) => true,
            Some(End::Trailers(_) | End::Error(_)) => false,
        };
        has_ended && self.read.data.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = match self.end {
            None => self.rest.size_hint(),
            Some(_) => SizeHint::with_exact(0),
        };
        let read = self.read.data.len() as u64;
        let (lower, upper) = (hint.lower(), hint.upper());
        // The upper bound goes first, because it must not be below the lower one.
        if let Some(upper) = upper {
            hint.set_upper(upper.saturating_add(read));
        }
        hint.set_lower(lower.saturating_add(read));
        hint
    }
}

impl<B: Body> fmt::Debug for ReadAheadBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAheadBody")
            .field("read", &self.read.data.len())
            .finish_non_exhaustive()
    }
}
