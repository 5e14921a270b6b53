//! The service that sends each request to an endpoint that can serve it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::future::RouteFuture;
use super::handle::RouterHandle;
use super::shared::RouterShared;
use super::{RouteBody, RouteResponseBody};
use crate::endpoints::Endpoints;
use crate::gate::{Permit, Shared};
use crate::http::PermitBody;
use crate::service::ReadyState;

/// Sends each request to an endpoint that can serve it. Made by [`RouteLayer`](super::RouteLayer).
///
/// With `overflow = "backpressure"`, `poll_ready` reserves a place in the waiting room. It belongs to the service that was
/// polled: a clone starts without one.
pub struct Route<S> {
    inner: S,
    shared: Arc<RouterShared>,
    ready: ReadyState<Shared<Endpoints>>,
}

impl<S> Route<S> {
    pub(super) fn new(inner: S, shared: Arc<RouterShared>) -> Self {
        Self {
            inner,
            shared,
            ready: ReadyState::Idle,
        }
    }

    /// The inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, without the routing in front of it.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// A handle to the endpoints and the waiting room.
    #[must_use]
    pub fn handle(&self) -> RouterHandle {
        RouterHandle(Arc::clone(&self.shared))
    }
}

impl<S, B, R> Service<Request<B>> for Route<S>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<PermitBody<RouteResponseBody<R>, Permit<Endpoints>>>;
    type Error = S::Error;
    type Future = RouteFuture<S, B, R>;

    /// Always ready, so that a full room can reject; with `overflow = "backpressure"`, ready once a place is reserved
    /// for the call that follows.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let state = &self.shared.state;
        if !state.has_backpressure() {
            return Poll::Ready(Ok(()));
        }
        self.ready.poll_reserve(state.gate.shared(), cx).map(Ok)
    }

    fn call(&mut self, request: Request<B>) -> RouteFuture<S, B, R> {
        let prepared = self.ready.take();
        RouteFuture::new(
            Arc::clone(&self.shared),
            self.inner.clone(),
            prepared,
            request,
        )
    }
}

impl<S: Clone> Clone for Route<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
            // A reservation is for one request: the clone makes its own.
            ready: ReadyState::Idle,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Route<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("inner", &self.inner)
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}
