//! The body of a queue's response: the inner service's body with the slot inside, or the body of a rejection.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::gate::BodyPermit;
use crate::http::PermitBody;

/// The error of a body of any kind.
type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a [`Queue`](super::Queue)'s response: the inner service's body, or the body of a rejection.
    ///
    /// The inner service's body holds the request's slot until it ends, fails or is dropped. The error is the boxed
    /// error of the inner body, or of a body that [`on_reject`](super::QueueLayer::on_reject) returned.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::{BodyExt, Full};
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_triage::QueueLayer;
    /// use tower_triage::queue::QueueResponseBody;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let queue = QueueLayer::limit(1);
    /// let handle = queue.handle();
    /// let service = queue.layer(service_fn(|_: Request<()>| async {
    ///     Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("hello"))))
    /// }));
    ///
    /// let response = service.oneshot(Request::default()).await?;
    /// let body: QueueResponseBody<Full<Bytes>> = response.into_body();
    /// assert_eq!(handle.status().running, 1);
    /// assert_eq!(body.collect().await?.to_bytes(), "hello");
    /// assert_eq!(handle.status().running, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub struct QueueResponseBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[project = ContentProj]
    enum Content<B> {
        // The inner service's body, or a rejection in the default form.
        Held { #[pin] body: PermitBody<B, BodyPermit> },
        // A rejection in the form that the user writes.
        Rendered { body: RenderedBody },
    }
}

impl<B> QueueResponseBody<B> {
    #[inline]
    pub(super) fn held(body: PermitBody<B, BodyPermit>) -> Self {
        let content = Content::Held { body };
        Self { content }
    }

    pub(super) fn rejection(bytes: Bytes) -> Self {
        Self::held(PermitBody::rejection(bytes))
    }

    pub(super) fn rendered(body: RenderedBody) -> Self {
        let content = Content::Rendered { body };
        Self { content }
    }
}

/// Returns an empty body, which layers that answer in place of a service need, such as timeouts and CORS.
impl<B> Default for QueueResponseBody<B> {
    fn default() -> Self {
        Self::rejection(Bytes::new())
    }
}

impl<B> Body for QueueResponseBody<B>
where
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = BoxError;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().content.project() {
            ContentProj::Held { body } => body.poll_frame(cx).map_err(Into::into),
            ContentProj::Rendered { body } => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Held { body } => body.is_end_stream(),
            Content::Rendered { body } => body.look(|body| body.is_end_stream()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Held { body } => body.size_hint(),
            Content::Rendered { body } => body.look(|body| body.size_hint()),
        }
    }
}

impl<B> fmt::Debug for QueueResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueResponseBody").finish_non_exhaustive()
    }
}

/// A body of any type, as the user's `on_reject` returned it.
///
/// The mutex is never contended. It makes the body `Sync`, although the bodies of axum and tonic are not.
pub(crate) struct RenderedBody(Mutex<Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>>);

impl RenderedBody {
    pub(super) fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Self(Mutex::new(Box::pin(BoxErrors { body })))
    }

    fn look<T>(&self, look: impl FnOnce(&dyn Body<Data = Bytes, Error = BoxError>) -> T) -> T {
        look(&**self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        body.as_mut().poll_frame(cx)
    }
}

pin_project! {
    /// A body with its errors in boxes.
    struct BoxErrors<B> {
        #[pin]
        body: B,
    }
}

impl<B: Body<Error: Into<BoxError>>> Body for BoxErrors<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        self.project().body.poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    fn assert_send_and_sync<T: Send + Sync>(_: &T) {}

    #[tokio::test]
    async fn a_rendered_body_streams_with_its_trailers_and_errors() {
        let data = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
        let trailers = Frame::trailers(http::HeaderMap::new());
        let frames = [data("a"), data("b"), Ok(trailers), Err("reset")];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let mut body = QueueResponseBody::<Full<Bytes>>::rendered(RenderedBody::new(body));
        assert_send_and_sync(&body);
        assert!(!body.is_end_stream());

        for expected in ["a", "b"] {
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), expected);
        }
        assert!(body.frame().await.unwrap().unwrap().is_trailers());
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "reset");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn a_rendered_body_of_known_length_says_so() {
        let rendered = RenderedBody::new("busy".to_owned());
        let body = QueueResponseBody::<Full<Bytes>>::rendered(rendered);
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "busy");
        assert!(QueueResponseBody::<Full<Bytes>>::default().is_end_stream());
    }
}
