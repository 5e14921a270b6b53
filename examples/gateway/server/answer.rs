//! The future of a response on a connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Body as PageBody;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{BodyExt, Either};
use pin_project_lite::pin_project;

use super::activity::Served;
use super::body::ServedBody;
use super::exchange::Exchange;
use crate::pages;
use crate::track::{Tracked, TrackedBody, TrackedFuture};

pin_project! {
    /// The answer to a tracked request: the handler's, or 408 if the request's body stalls. The body of a websocket runs in
    /// a task of its own, because the server drops it.
    ///
    /// An `async` block would have room for the handler's future more than once, and the server moves all of it.
    pub(super) struct AnswerFuture<F> {
        #[pin]
        response: TrackedFuture<Unstalled<F>>,
        // `None` once the response is there.
        served: Option<Served>,
        version: Version,
    }
}

pin_project! {
    /// The handler's response, unless the request's body stalls.
    struct Unstalled<F> {
        #[pin]
        response: F,
        exchange: Arc<Exchange>,
        version: Version,
    }
}

impl<F> AnswerFuture<F> {
    pub(super) fn new(
        response: F,
        version: Version,
        served: Served,
        tracked: Box<Tracked>,
    ) -> Self {
        let exchange = Arc::clone(&served.exchange);
        let unstalled = Unstalled {
            response,
            exchange,
            version,
        };
        Self {
            response: TrackedFuture::new(unstalled, tracked),
            served: Some(served),
            version,
        }
    }
}

impl<F, B> Future for Unstalled<F>
where
    F: Future<Output = Response<B>>,
{
    type Output = Response<Either<B, PageBody>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.exchange.poll_response(this.response, cx));
        Poll::Ready(match response {
            Some(response) => response.map(Either::Left),
            None => body_timeout(*this.version).map(Either::Right),
        })
    }
}

impl<F, B> Future for AnswerFuture<F>
where
    F: Future<Output = Response<B>>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Output = Result<Response<ServedBody<TrackedBody<Either<B, PageBody>>>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(cx));
        let Some(served) = this.served.take() else {
            panic!("response future polled after it was answered");
        };
        let is_http2 = *this.version == Version::HTTP_2;
        let is_websocket = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let response = response.map(|body| match is_websocket {
            true => {
                tokio::spawn(body.collect());
                ServedBody::new(None, is_http2, served)
            }
            false => ServedBody::new(Some(body), is_http2, served),
        });
        Poll::Ready(Ok(response))
    }
}

/// The answer to a client that does not send the rest of its request.
fn body_timeout(version: Version) -> Response<PageBody> {
    let mut response = pages::error(
        StatusCode::REQUEST_TIMEOUT,
        "request_body_timeout",
        "the rest of the request's body did not arrive in time".to_owned(),
    );
    if version < Version::HTTP_2 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    response
}
