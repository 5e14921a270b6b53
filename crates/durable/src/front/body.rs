//! The body of a response, which comes from the inner service, from the store or from a page of this layer.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::event_body::EventBody;
use super::stored_body::StoredBody;

pin_project! {
    /// The response body of [`Durable`](super::Durable). It is the body of the inner service, a stored body, or a page
    /// about a stored request.
    #[derive(Debug)]
    pub struct DurableBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = ContentProj]
    enum Content<B> {
        Inner { #[pin] body: B },
        Own { body: OwnBody },
    }
}

impl<B> DurableBody<B> {
    pub(super) fn inner(body: B) -> Self {
        let content = Content::Inner { body };
        Self { content }
    }

    pub(super) fn own(body: OwnBody) -> Self {
        let content = Content::Own { body };
        Self { content }
    }
}

impl<B> Body for DurableBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.project().content.project() {
            ContentProj::Inner { body } => body
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(Into::into))),
            ContentProj::Own { body } => body
                .poll_data(cx)
                .map(|data| data.map(|data| data.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Inner { body } => body.is_end_stream(),
            Content::Own { body } => body.left() == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Inner { body } => body.size_hint(),
            Content::Own { body } => body
                .left()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

/// A body that the layer itself provides, as opposed to a body of the inner service.
pub(super) enum OwnBody {
    /// The unread rest of a complete body. An empty rest is always `None`, so that `is_end_stream` can tell the end.
    Whole(Option<Bytes>),
    /// A stored body, which is read from the store as the client takes it.
    Stored(StoredBody),
    /// A stream of events that are read from the store while they come.
    Events(EventBody),
}

impl OwnBody {
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Box<dyn Error + Send + Sync>>>> {
        match self {
            Self::Whole(rest) => Poll::Ready(rest.take().map(Ok)),
            Self::Stored(body) => body.poll_part(cx),
            Self::Events(events) => events.poll_data(cx).map(|data| data.map(Ok)),
        }
    }

    /// Returns the number of bytes that are still to be taken, or `None` if it is unknown.
    fn left(&self) -> Option<u64> {
        match self {
            Self::Whole(rest) => Some(rest.as_ref().map_or(0, |rest| rest.len() as u64)),
            Self::Stored(body) => Some(body.left()),
            Self::Events(_) => None,
        }
    }
}

impl From<Bytes> for OwnBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl fmt::Debug for OwnBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnBody").finish_non_exhaustive()
    }
}
