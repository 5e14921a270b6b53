//! The body of a request as the inner service gets it.

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::client_wait::ClientWait;
use crate::endpoints::EndpointRef;

pin_project! {
    /// The body of a request as the inner service gets it: the whole body in memory if the demand is read from it, or else
    /// the caller's own body, which is streamed.
    ///
    /// A body that was read is passed on byte for byte, but for the model's name where another model serves the request.
    #[derive(Debug)]
    pub struct RouteBody<B> {
        #[pin]
        inner: Inner<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = InnerProj]
    enum Inner<B> {
        // The parts still to be sent. Another model's name may be a part of its own.
        Buffered { parts: [Bytes; 3] },
        Streamed { #[pin] body: B, wait: ClientWait },
    }
}

/// A body that was read as a whole.
#[derive(Debug, Clone, Default)]
pub(super) struct BufferedBody {
    pub(super) bytes: Bytes,
    /// The range of the model's name within the bytes, including the quotes.
    pub(super) model_at: Option<Range<usize>>,
}

impl BufferedBody {
    /// Returns the body unchanged.
    pub(super) fn unchanged<B>(self) -> RouteBody<B> {
        let parts = [self.bytes, Bytes::new(), Bytes::new()];
        let inner = Inner::Buffered { parts };
        RouteBody { inner }
    }

    /// Returns the body with `model` in place of the model that it names. It stays unchanged if it names no model.
    pub(super) fn naming<B>(self, model: &str) -> RouteBody<B> {
        let Some(model_at) = self.model_at else {
            return self.unchanged();
        };
        let bytes = self.bytes;
        let name = serde_json::Value::from(model).to_string(); // quoted and escaped
        let (before, after) = (bytes.slice(..model_at.start), bytes.slice(model_at.end..));
        let parts = [before, name.into(), after];
        let inner = Inner::Buffered { parts };
        RouteBody { inner }
    }
}

impl<B> RouteBody<B> {
    pub(super) fn streamed(body: B) -> Self {
        let wait = ClientWait::default();
        let inner = Inner::Streamed { body, wait };
        Self { inner }
    }

    /// Notes the endpoint that the body is sent to, so that waits for the client are counted for it.
    #[inline]
    pub(super) fn set_endpoint(&mut self, endpoint: &EndpointRef) {
        if let Inner::Streamed { wait, .. } = &mut self.inner {
            *wait = ClientWait::at(endpoint);
        }
    }
}

impl<B: Body<Data = Bytes>> Body for RouteBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().inner.project() {
            InnerProj::Buffered { parts } => {
                let next = parts.iter_mut().find(|part| !part.is_empty());
                Poll::Ready(next.map(|part| Ok(Frame::data(std::mem::take(part)))))
            }
            InnerProj::Streamed { body, wait } => {
                let frame = body.poll_frame(cx);
                match &frame {
                    Poll::Ready(Some(Ok(_))) => wait.on_sent(),
                    Poll::Ready(_) => wait.set(false),
                    Poll::Pending => wait.set(true),
                }
                frame
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Buffered { parts } => parts.iter().all(Bytes::is_empty),
            Inner::Streamed { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Buffered { parts } => {
                SizeHint::with_exact(parts.iter().map(|part| part.len() as u64).sum())
            }
            Inner::Streamed { body, .. } => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::{BodyExt, Empty};

    use super::*;

    fn buffered(text: &'static str, name: &str) -> BufferedBody {
        let start = text.find(name).unwrap();
        BufferedBody {
            bytes: Bytes::from_static(text.as_bytes()),
            model_at: Some(start..start + name.len()),
        }
    }

    fn read(body: RouteBody<Empty<Bytes>>) -> Bytes {
        let length = body.size_hint().exact().unwrap();
        let bytes = body.collect().now_or_never().unwrap().unwrap().to_bytes();
        assert_eq!(bytes.len() as u64, length);
        bytes
    }

    #[test]
    fn only_the_name_is_replaced() {
        let body = buffered(
            "{\"n\":1.50, \"model\" : \"a\\u0062\" ,\"x\":\"ab\"}",
            "\"a\\u0062\"",
        );
        assert_eq!(read(body.clone().unchanged()), body.bytes);
        assert_eq!(
            read(body.naming("c\"d")),
            "{\"n\":1.50, \"model\" : \"c\\\"d\" ,\"x\":\"ab\"}"
        );
    }

    #[test]
    fn an_empty_body_is_at_its_end() {
        let (bytes, model_at) = (Bytes::new(), None);
        let body: RouteBody<Empty<Bytes>> = BufferedBody { bytes, model_at }.unchanged();
        assert!(body.is_end_stream());
        assert!(RouteBody::streamed(Empty::<Bytes>::new()).is_end_stream());
    }
}
