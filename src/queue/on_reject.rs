//! The answers that a user's closure gives to rejected requests.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::Body;

use super::request_head::RequestHead;
use super::response_body::{OwnContent, RenderedBody};
use crate::http::Rejection;

/// An answer of [`on_reject`](super::QueueLayer::on_reject): a [`Rejection`], or any [`Response`] with a body of
/// [`Bytes`], as those of axum, tonic and `http_body_util` have.
///
/// A [`Rejection`] is written in the form that the request asks for, as JSON or as a gRPC status. A response is sent as
/// it is.
///
/// A future is no answer, so a closure that waits does not compile:
///
/// ```compile_fail,E0277
/// # use std::time::Duration;
/// # use tower_triage::{QueueConfig, QueueLayer};
/// let queue = QueueLayer::new(QueueConfig::new(8)).on_reject(|why, _| {
///     let why = why.clone();
///     async move {
///         tokio::time::sleep(Duration::from_secs(1)).await;
///         why
///     }
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`on_reject` can't answer with `{Self}`",
    label = "neither a `Rejection` nor an `http::Response`",
    note = "return a `Rejection`, or an `http::Response` whose body is of `Bytes` and is `Send + 'static`; in axum, `.into_response()` makes one",
    note = "`on_reject` can't wait, so it returns no future: a pause before refusing is a slot of its own"
)]
pub trait RejectAnswer: sealed::Render {}

pub(super) mod sealed {
    use super::{OwnContent, RequestHead, Response};

    /// A value that is written as the response to a rejected request.
    pub trait Render {
        /// Returns the response to the request.
        fn render(self, request: &RequestHead<'_>) -> Response<OwnContent>;
    }
}

impl RejectAnswer for Rejection {}

impl sealed::Render for Rejection {
    fn render(self, request: &RequestHead<'_>) -> Response<OwnContent> {
        self.into_response_to(request.headers()).map(Into::into)
    }
}

#[diagnostic::do_not_recommend]
impl<B> RejectAnswer for Response<B> where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static
{
}

#[diagnostic::do_not_recommend]
impl<B> sealed::Render for Response<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    fn render(self, _: &RequestHead<'_>) -> Response<OwnContent> {
        self.map(|body| RenderedBody::new(body).into())
    }
}

/// A user's closure that writes the whole response to a rejected request. It is boxed twice, so that the clone for each
/// request copies one word.
#[derive(Clone)]
pub(super) struct OnReject(Arc<Box<RenderFn>>);

/// The type of that closure, which gets the rejection and the head of the request.
type RenderFn = dyn Fn(&Rejection, &RequestHead<'_>) -> Response<OwnContent> + Send + Sync;

impl OnReject {
    pub(super) fn new<F, A>(answer: F) -> Self
    where
        F: Fn(&Rejection, &RequestHead<'_>) -> A + Send + Sync + 'static,
        A: RejectAnswer,
    {
        Self(Arc::new(Box::new(move |rejection: &_, request: &_| {
            sealed::Render::render(answer(rejection, request), request)
        })))
    }

    /// Returns the response to a rejected request.
    pub(super) fn respond(
        &self,
        rejection: &Rejection,
        request: &RequestHead<'_>,
    ) -> Response<OwnContent> {
        (self.0)(rejection, request)
    }
}
