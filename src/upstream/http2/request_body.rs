//! The body of a request over HTTP/2.

use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::Reason;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use crate::upstream::upload::Upload;

/// The body of a request, which fails once its stream is over. hyper sends it in a task of its own, and resets the stream
/// at its failure. So a body that is still being sent ends with its answer.
pub(super) struct RequestBody<B> {
    upload: Upload<B>,
    /// A receiver whose sender is dropped with the stream. `None` if the body is empty.
    stream: Option<oneshot::Receiver<Infallible>>,
}

impl<B> RequestBody<B> {
    /// Returns the body of a request, with the sender that its stream keeps.
    pub(super) fn new(upload: Upload<B>) -> (Self, Option<oneshot::Sender<Infallible>>) {
        let (kept, stream) = match upload.progress() {
            Some(_) => Some(oneshot::channel()).unzip(),
            None => (None, None),
        };
        (Self { upload, stream }, kept)
    }

    /// Returns the body, for another stream.
    pub(super) fn into_upload(self) -> Upload<B> {
        self.upload
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
        if let Some(stream) = &mut self.stream
            && Pin::new(stream).poll(cx).is_ready()
        {
            self.stream = None;
            return Poll::Ready(Some(Err(h2::Error::from(Reason::CANCEL).into())));
        }
        let frame = Pin::new(&mut self.upload).poll_frame(cx);
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.upload.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.upload.size_hint()
    }
}
