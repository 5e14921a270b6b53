//! A request that may be sent anywhere must be there as a whole before anybody knows where.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

/// A request's body, read whole. Cloning it copies nothing.
#[derive(Debug, Clone, Default)]
pub struct WholeBody(Full<Bytes>);

impl From<Bytes> for WholeBody {
    fn from(body: Bytes) -> Self {
        Self(Full::new(body))
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
