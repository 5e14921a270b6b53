//! The body of a request over HTTP/2.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot::{self, Receiver, Sender};

use crate::upstream::upload::Upload;

/// The body of a request, as hyper reads it.
///
/// hyper sends it in a task of its own, and resets the stream if the body fails. So the body fails once its stream is over,
/// which ends an upload together with its answer. If hyper drops the body before it has read it, the body comes back.
pub(super) struct RequestBody<B> {
    upload: Option<Upload<B>>,
    /// The receiver of the stream's end.
    end: Option<Receiver<Infallible>>,
    /// The way back for a body that hyper does not read.
    back: Option<Sender<Upload<B>>>,
}

/// The other ends of a body that is not empty.
pub(super) struct Ends<B> {
    /// The body's stream keeps this sender. Dropping it ends the body.
    pub(super) stream: Sender<Infallible>,
    /// The receiver of a body that hyper did not read.
    pub(super) unread: Receiver<Upload<B>>,
}

impl<B> RequestBody<B> {
    /// Returns the body of a request. Its other ends are `None` if it is empty.
    pub(super) fn new(upload: Upload<B>) -> (Self, Option<Ends<B>>) {
        let is_empty = upload.progress().is_none();
        let mut body = Self {
            upload: Some(upload),
            end: None,
            back: None,
        };
        if is_empty {
            return (body, None);
        }
        let (stream, end) = oneshot::channel();
        let (back, unread) = oneshot::channel();
        (body.end, body.back) = (Some(end), Some(back));
        (body, Some(Ends { stream, unread }))
    }
}

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        if let (Some(upload), Some(back)) = (self.upload.take(), self.back.take()) {
            _ = back.send(upload); // fails if the request is not awaited any more
        }
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.back = None;
        if let Some(end) = &mut self.end
            && Pin::new(end).poll(cx).is_ready()
        {
            self.end = None;
            return Poll::Ready(Some(Err(h2::Error::from(Reason::CANCEL).into())));
        }
        match &mut self.upload {
            Some(upload) => Pin::new(upload).poll_frame(cx).map_err(Into::into),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upload.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        self.upload.as_ref().map_or_else(empty, Body::size_hint)
    }
}
