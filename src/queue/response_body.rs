//! The body of a queue's response: the inner service's body with the slot inside, or the body of a rejection.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::limited_body::LimitedBody;
use super::queue_time::QueueTime;
use crate::admit::RejectReason;
use crate::gate::BodyPermit;
use crate::http::{LimitedHold, PermitBody};

/// The error of a body of any kind.
type BoxError = Box<dyn Error + Send + Sync>;

pin_project! {
    /// The body of a [`Queue`](super::Queue)'s response: the inner service's body, or the body of a rejection.
    ///
    /// It has the [time](Self::queue_time) that the request waited, and the [reason](Self::reason) if it was rejected. The
    /// inner service's body holds the request's slot until it ends, fails or is dropped.
    ///
    /// The error is the boxed error of the inner body, or of a body that [`on_reject`](super::QueueLayer::on_reject)
    /// returned.
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
    /// assert!(body.queue_time().is_zero() && body.reason().is_none());
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
        // The body of the inner service.
        Held { #[pin] body: PermitBody<B, BodyPermit>, waited: Duration },
        // The body of the inner service, with limits on the time of its slot.
        Limited { body: Pin<Box<LimitedBody<B>>>, waited: Duration },
        // A body in its place. It is boxed because it is rare.
        Own { body: Box<OwnBody> },
    }
}

/// A body that is not the inner service's.
#[derive(Default)]
struct OwnBody {
    content: OwnContent,
    /// The reason of the rejection, or `None` for a status stream or an empty body.
    reason: Option<RejectReason>,
    waited: Duration,
}

/// The content of a body that the queue itself made.
pub enum OwnContent {
    /// The default form of a rejection.
    Whole(Bytes),
    /// A rejection that the user's closure wrote, or a status stream.
    Rendered(RenderedBody),
}

impl Default for OwnContent {
    fn default() -> Self {
        Self::Whole(Bytes::new())
    }
}

impl From<Bytes> for OwnContent {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl From<RenderedBody> for OwnContent {
    fn from(body: RenderedBody) -> Self {
        Self::Rendered(body)
    }
}

impl<B> QueueResponseBody<B> {
    /// Wraps the inner service's body together with its permit.
    #[inline(always)]
    pub(super) fn held(body: B, permit: Option<BodyPermit>, waited: Duration) -> Self {
        let body = PermitBody::holding(body, permit);
        let content = Content::Held { body, waited };
        Self { content }
    }

    /// Wraps the inner service's body together with its permit, which has limits.
    pub(super) fn limited(body: B, hold: LimitedHold<BodyPermit>, waited: Duration) -> Self {
        let body = Box::pin(LimitedBody::new(body, hold));
        let content = Content::Limited { body, waited };
        Self { content }
    }

    /// Makes the body of a rejection.
    pub(super) fn rejection(content: OwnContent, reason: RejectReason, waited: Duration) -> Self {
        Self::own(OwnBody {
            content,
            reason: Some(reason),
            waited,
        })
    }

    /// Makes the body of a response that begins while its request waits.
    pub(super) fn status(
        body: impl Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    ) -> Self {
        Self::own(OwnBody {
            content: RenderedBody::new(body).into(),
            ..OwnBody::default()
        })
    }

    fn own(body: OwnBody) -> Self {
        let body = Box::new(body);
        let content = Content::Own { body };
        Self { content }
    }

    /// Returns the time that the request waited, for its slot and then for the inner service to be ready. It is zero for a
    /// response that [began while its request waited](super::QueueLayer#status-while-waiting).
    #[must_use]
    pub fn queue_time(&self) -> Duration {
        match &self.content {
            Content::Held { waited, .. } | Content::Limited { waited, .. } => *waited,
            Content::Own { body } => body.waited,
        }
    }

    /// Returns the reason of the rejection, or `None` if the request was served.
    #[must_use]
    pub fn reason(&self) -> Option<&RejectReason> {
        match &self.content {
            Content::Held { .. } | Content::Limited { .. } => None,
            Content::Own { body } => body.reason.as_ref(),
        }
    }

    /// Adds the [`QueueTime`] of a request that waited, and the [`RejectReason`] of a rejected one, to the response's
    /// extensions. Layers that see the body in a box only, as in axum, can read these.
    ///
    /// Call it before the body is boxed:
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower::ServiceBuilder;
    /// use tower_triage::queue::QueueResponseBody;
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let queue = QueueLayer::new(QueueConfig::new(8));
    /// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(
    ///     ServiceBuilder::new()
    ///         .map_response(QueueResponseBody::with_extensions)
    ///         .layer(queue),
    /// );
    /// ```
    #[must_use]
    pub fn with_extensions(mut response: Response<Self>) -> Response<Self> {
        let (waited, reason) = (
            response.body().queue_time(),
            response.body().reason().cloned(),
        );
        let extensions = response.extensions_mut();
        if !waited.is_zero() {
            extensions.insert(QueueTime(waited));
        }
        if let Some(reason) = reason {
            extensions.insert(reason);
        }
        response
    }
}

/// Returns an empty body, which layers that answer in place of a service need, such as timeouts and CORS.
impl<B> Default for QueueResponseBody<B> {
    fn default() -> Self {
        Self::own(OwnBody::default())
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
            ContentProj::Held { body, .. } => body.poll_frame(cx).map_err(Into::into),
            ContentProj::Limited { body, .. } => body.as_mut().poll_frame(cx),
            ContentProj::Own { body } => body.content.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Held { body, .. } => body.is_end_stream(),
            Content::Limited { body, .. } => body.is_end_stream(),
            Content::Own { body } => body.content.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Held { body, .. } => body.size_hint(),
            Content::Limited { body, .. } => body.size_hint(),
            Content::Own { body } => body.content.size_hint(),
        }
    }
}

impl OwnContent {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Rendered(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Rendered(body) => body.look(|body| body.is_end_stream()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Rendered(body) => body.look(|body| body.size_hint()),
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
pub struct RenderedBody(Mutex<Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>>);

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

    fn rejection(content: impl Into<OwnContent>) -> QueueResponseBody<Full<Bytes>> {
        QueueResponseBody::rejection(content.into(), RejectReason::Full, Duration::ZERO)
    }

    #[tokio::test]
    async fn a_rendered_body_streams_with_its_trailers_and_errors() {
        let data = |text: &'static str| Ok(Frame::data(Bytes::from_static(text.as_bytes())));
        let trailers = Frame::trailers(http::HeaderMap::new());
        let frames = [data("a"), data("b"), Ok(trailers), Err("reset")];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let mut body = rejection(RenderedBody::new(body));
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
    async fn a_rejection_of_known_length_says_so() {
        for body in [
            rejection(RenderedBody::new("busy".to_owned())),
            rejection(Bytes::from("busy")),
        ] {
            assert!(!body.is_end_stream());
            assert_eq!(body.size_hint().exact(), Some(4));
            assert_eq!(body.collect().await.unwrap().to_bytes(), "busy");
        }
        assert!(QueueResponseBody::<Full<Bytes>>::default().is_end_stream());
    }
}
