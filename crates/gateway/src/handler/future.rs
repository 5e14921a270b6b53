//! The future of the handler's answer to a request.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::BoxError;
use axum::body::Body as PageBody;
use bytes::Bytes;
use http::Response;
use http_body::Body;
use http_body_util::Either;
use pin_project_lite::pin_project;

use crate::error_shape::{is_to_reshape, reshaped};
use crate::paths::Api;

pin_project! {
    /// The answer to a request: the response of the routed request, or a page.
    ///
    /// The future of a page is boxed, because the largest one would set the size of them all, and the server moves each
    /// future before it polls it.
    #[project = GatewayProj]
    pub(crate) enum GatewayFuture<F> {
        Routed {
            #[pin]
            response: F,
            // The API that the client speaks, which sets the shape of errors.
            api: Api,
        },
        Page { page: Pin<Box<dyn Future<Output = Response<PageBody>> + Send>> },
    }
}

impl<F> GatewayFuture<F> {
    pub(crate) fn page(page: impl Future<Output = Response<PageBody>> + Send + 'static) -> Self {
        let page = Box::pin(page);
        Self::Page { page }
    }
}

impl<F, B> Future for GatewayFuture<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Output = Response<Either<B, PageBody>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (error, api) = match self.as_mut().project() {
            GatewayProj::Page { page } => return page.as_mut().poll(cx).map(to_page),
            GatewayProj::Routed { response, api } => match ready!(response.poll(cx)) {
                Ok(error) if is_to_reshape(&error, *api) => (error, *api),
                Ok(response) => return Poll::Ready(response.map(Either::Left)),
                Err(never) => match never {},
            },
        };
        self.set(Self::page(reshaped(error, api)));
        self.poll(cx)
    }
}

fn to_page<B>(page: Response<PageBody>) -> Response<Either<B, PageBody>> {
    page.map(Either::Right)
}
