//! Response bodies, which come from the inner service or from the API for files and batches.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

use super::list::{ListPage, NextOfList};
use super::scan::Scan;
use super::{files, keys};
use tower_triage_durable::{Store, StoreError};

pin_project! {
    /// The response body of a [`BatchService`](super::BatchService).
    pub struct BatchBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[project = KindProjected]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Whole { body: Full<Bytes> },
        File { file: FileBody },
        List { list: ListBody },
    }
}

impl<B> BatchBody<B> {
    pub(super) fn inner(body: B) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    pub(super) fn whole(body: impl Into<Bytes>) -> Self {
        Self {
            kind: Kind::Whole {
                body: Full::new(body.into()),
            },
        }
    }

    /// Returns a body with the content of a file, which has `bytes` bytes.
    pub(super) fn file(store: &Arc<dyn Store>, id: &str, bytes: u64) -> Self {
        let file = FileBody {
            next: NextPiece::start(FilePieces::new(store, id)),
            left: bytes,
        };
        Self {
            kind: Kind::File { file },
        }
    }

    /// Returns a body with the objects of a list, which begins with `first`.
    pub(super) fn list(first: Bytes, list: ListPage) -> Self {
        let list = ListBody {
            first: Some(first),
            next: Some(list.next_boxed()),
        };
        Self {
            kind: Kind::List { list },
        }
    }
}

impl<B> Body for BatchBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.project().kind.project() {
            KindProjected::Inner { body } => body
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(Into::into))),
            KindProjected::Whole { body } => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            KindProjected::File { file } => file
                .poll_piece(cx)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
            KindProjected::List { list } => list
                .poll_piece(cx)
                .map(|piece| piece.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Whole { body } => body.is_end_stream(),
            Kind::File { file } => file.left == 0,
            Kind::List { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Whole { body } => body.size_hint(),
            Kind::File { file } => SizeHint::with_exact(file.left),
            Kind::List { .. } => SizeHint::default(),
        }
    }
}

/// The content of a file, which is read as fast as the client receives it.
struct FileBody {
    next: NextPiece,
    /// The number of bytes that are still to be sent.
    left: u64,
}

/// The pieces of a file in their order.
struct FilePieces {
    scan: Scan,
    /// The index of the last piece. A further part without its piece is left from a write that did not end.
    index: Option<u64>,
}

impl FilePieces {
    fn new(store: &Arc<dyn Store>, id: &str) -> Self {
        Self {
            scan: files::pieces(store, id),
            index: None,
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        while let Some((key, piece)) = self.scan.next().await? {
            match keys::piece_index(&key) {
                Some((index, true)) if self.index != Some(index) => {}
                index => {
                    self.index = index.map(|(index, _)| index);
                    return Ok(Some(piece));
                }
            }
        }
        Ok(None)
    }
}

/// The lookup of the next piece. It returns the pieces together with the piece, so that the next lookup can use them.
struct NextPiece(Pin<Box<dyn Future<Output = (FilePieces, Piece)> + Send>>);

type Piece = Result<Option<Bytes>, StoreError>;

impl NextPiece {
    fn start(mut pieces: FilePieces) -> Self {
        Self(Box::pin(async move {
            let piece = pieces.next().await;
            (pieces, piece)
        }))
    }
}

impl FileBody {
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn Error + Send + Sync>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let (pieces, piece) = ready!(self.next.0.as_mut().poll(cx));
        self.next = NextPiece::start(pieces);
        Poll::Ready(Some(match piece {
            Ok(Some(piece)) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                Ok(piece)
            }
            // The file was deleted meanwhile. The error breaks the connection, so the client can't mistake the part for
            // the whole.
            Ok(None) => {
                self.left = 0;
                Err("the file was deleted while it was read".into())
            }
            Err(error) => {
                self.left = 0;
                Err(error.into())
            }
        }))
    }
}

/// The objects of a list, which are read as fast as the client receives them.
struct ListBody {
    /// The piece that was read before the response began.
    first: Option<Bytes>,
    /// The read of the next piece. `None` at the end.
    next: Option<NextOfList>,
}

impl ListBody {
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn Error + Send + Sync>>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(next) = &mut self.next else {
            return Poll::Ready(None);
        };
        let read = ready!(next.as_mut().poll(cx));
        self.next = None;
        Poll::Ready(match read {
            Ok(Some((piece, list))) => {
                self.next = Some(list.next_boxed());
                Some(Ok(piece))
            }
            Ok(None) => None,
            // The error breaks the connection, so the client can't mistake the part for the whole.
            Err(error) => Some(Err(error.into())),
        })
    }
}
