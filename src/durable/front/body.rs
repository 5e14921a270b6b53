//! The body of a response, which comes from the inner service, from the store or from a page of this layer.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::event_body::EventBody;

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

impl<B: Body<Data = Bytes>> Body for DurableBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().content.project() {
            ContentProj::Inner { body } => body.poll_frame(cx),
            ContentProj::Own { body } => {
                body.poll_data(cx).map(|data| Some(Ok(Frame::data(data?))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Inner { body } => body.is_end_stream(),
            Content::Own { body } => matches!(body, OwnBody::Whole(None)),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Inner { body } => body.size_hint(),
            Content::Own {
                body: OwnBody::Whole(rest),
            } => SizeHint::with_exact(rest.as_ref().map_or(0, |rest| rest.len() as u64)),
            Content::Own { .. } => SizeHint::default(),
        }
    }
}

/// A body that the layer itself provides, as opposed to a body of the inner service.
pub(super) enum OwnBody {
    /// The unread rest of a complete body. An empty rest is always `None`, so that `is_end_stream` can tell the end.
    Whole(Option<Bytes>),
    /// A stream of events that are read from the store while they come.
    Events(EventBody),
}

impl OwnBody {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Whole(rest) => Poll::Ready(rest.take()),
            Self::Events(events) => events.poll_data(cx),
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
