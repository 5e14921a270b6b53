//! A queue whose responses have a body of the user's choice.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::handle::QueueHandle;
use super::layer::QueueLayer;
use super::observe::ObservedLayer;

/// A layer that maps the response bodies of the layer `L`. Created by [`QueueLayer::map_response_body`].
#[derive(Clone)]
pub struct MapResponseBodyLayer<L, F> {
    layer: L,
    map: F,
}

impl<L, F> MapResponseBodyLayer<L, F> {
    pub(super) fn new(layer: L, map: F) -> Self {
        Self { layer, map }
    }
}

impl<P, F> MapResponseBodyLayer<QueueLayer<P>, F> {
    /// Returns a handle that reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        self.layer.handle()
    }
}

impl<P, O, F> MapResponseBodyLayer<ObservedLayer<QueueLayer<P>, O>, F> {
    /// Returns a handle that reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        self.layer.handle()
    }
}

impl<S, L: Layer<S>, F: Clone> Layer<S> for MapResponseBodyLayer<L, F> {
    type Service = MapResponseBody<L::Service, F>;

    fn layer(&self, inner: S) -> Self::Service {
        MapResponseBody {
            inner: self.layer.layer(inner),
            map: self.map.clone(),
        }
    }
}

/// A [`Queue`](super::Queue) whose response bodies are mapped. Created by [`MapResponseBodyLayer`].
#[derive(Clone)]
pub struct MapResponseBody<Q, F> {
    inner: Q,
    map: F,
}

impl<Q, F, Req, B, N> Service<Req> for MapResponseBody<Q, F>
where
    Q: Service<Req, Response = Response<B>>,
    F: Fn(B) -> N + Clone,
{
    type Response = Response<N>;
    type Error = Q::Error;
    type Future = MapResponseBodyFuture<Q::Future, F>;

    #[inline]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Q::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        MapResponseBodyFuture {
            future: self.inner.call(request),
            map: self.map.clone(),
        }
    }
}

/// Keeps the name of the gRPC service, as [`Queue`](super::Queue) does.
#[cfg(feature = "tonic")]
impl<Q: tonic::server::NamedService, F> tonic::server::NamedService for MapResponseBody<Q, F> {
    const NAME: &'static str = Q::NAME;
}

pin_project! {
    /// The response future of a [`MapResponseBody`].
    ///
    /// # Cancel safety
    ///
    /// Dropping it at any time gives up the place in the waiting room, or the slot, at once.
    pub struct MapResponseBodyFuture<Fut, F> {
        #[pin]
        future: Fut,
        map: F,
    }
}

impl<Fut, F, B, N, E> Future for MapResponseBodyFuture<Fut, F>
where
    Fut: Future<Output = Result<Response<B>, E>>,
    F: Fn(B) -> N,
{
    type Output = Result<Response<N>, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.future.poll(cx))?;
        Poll::Ready(Ok(response.map(&*this.map)))
    }
}

impl<L: fmt::Debug, F> fmt::Debug for MapResponseBodyLayer<L, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapResponseBodyLayer")
            .field("layer", &self.layer)
            .finish_non_exhaustive()
    }
}

impl<Q: fmt::Debug, F> fmt::Debug for MapResponseBody<Q, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapResponseBody")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<Fut, F> fmt::Debug for MapResponseBodyFuture<Fut, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapResponseBodyFuture")
            .finish_non_exhaustive()
    }
}
