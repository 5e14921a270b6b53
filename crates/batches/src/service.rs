//! The Tower service in front of the inner service.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{BatchApi, BatchBody};

impl<S> Layer<S> for BatchApi {
    type Service = BatchService<S>;

    fn layer(&self, inner: S) -> BatchService<S> {
        BatchService {
            api: self.clone(),
            inner,
        }
    }
}

/// A service that answers the calls of the API for files and batches, and passes all other requests to `S`.
#[derive(Debug, Clone)]
pub struct BatchService<S> {
    api: BatchApi,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for BatchService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<BatchBody<R>>;
    type Error = S::Error;
    type Future = BatchFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if !BatchApi::answers(request.uri().path()) {
            let future = self.inner.call(request);
            return BatchFuture {
                kind: Kind::Inner { future },
            };
        }
        // This call does not need the inner service. A fresh clone replaces it, which frees the capacity that
        // `poll_ready` has reserved.
        self.inner = self.inner.clone();
        let api = self.api.clone();
        BatchFuture {
            kind: Kind::Own {
                future: Box::pin(async move { api.respond(request).await }),
            },
        }
    }
}

pin_project! {
    /// The response future of a [`BatchService`].
    #[must_use = "futures do nothing unless polled"]
    pub struct BatchFuture<F, R> {
        #[pin]
        kind: Kind<F, R>,
    }
}

pin_project! {
    #[project = KindProjected]
    enum Kind<F, R> {
        Inner { #[pin] future: F },
        Own { future: Pin<Box<dyn Future<Output = Response<BatchBody<R>>> + Send>> },
    }
}

impl<F, R, E> Future for BatchFuture<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<BatchBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProjected::Inner { future } => future
                .poll(cx)
                .map(|response| response.map(|response| response.map(BatchBody::inner))),
            KindProjected::Own { future } => future.as_mut().poll(cx).map(Ok),
        }
    }
}
