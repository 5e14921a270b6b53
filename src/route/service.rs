//! The service that sends each request to an endpoint that can serve it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Request;
use tower_service::Service;

use super::future::RouteFuture;
use super::handle::RouteHandle;
use super::inner_service::{RoutableBody, RouteInner};
use super::response_body::Routed;
use super::shared::RouterShared;
use crate::endpoints::Endpoints;
use crate::gate::Shared;
use crate::service::ReadyState;

/// A service that sends each request to an endpoint that can serve it. A [`RouteLayer`](super::RouteLayer) creates it.
///
/// With `overflow = "backpressure"`, `poll_ready` reserves a place in the waiting room. The place belongs to the
/// service that was polled, so a clone starts without one.
pub struct Route<S> {
    pub(super) inner: S,
    pub(super) shared: Arc<RouterShared>,
    pub(super) ready: ReadyState<Shared<Endpoints>>,
}

impl<S> Route<S> {
    pub(super) fn new(inner: S, shared: Arc<RouterShared>) -> Self {
        Self {
            inner,
            shared,
            ready: ReadyState::IDLE,
        }
    }

    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service without the routing in front of it.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// Returns a handle to the endpoints and the waiting room.
    #[must_use]
    pub fn handle(&self) -> RouteHandle {
        RouteHandle(Arc::clone(&self.shared))
    }
}

impl<S, B> Service<Request<B>> for Route<S>
where
    B: RoutableBody<S>,
{
    type Response = Routed<<S as RouteInner<B>>::Body>;
    type Error = <S as RouteInner<B>>::Error;
    type Future = RouteFuture<S, B>;

    /// Returns ready at once, so that a full waiting room can reject the request. With `overflow = "backpressure"`, it
    /// is ready once a place is reserved for the call that follows.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        let state = &self.shared.state;
        if !state.has_backpressure() {
            return Poll::Ready(Ok(()));
        }
        self.ready.poll_reserve(state.gate.shared(), cx).map(Ok)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let attempts = S::start(self, request);
        RouteFuture { attempts }
    }
}

impl<S: Clone> Clone for Route<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
            // A reservation is for one request, so the clone makes its own.
            ready: ReadyState::IDLE,
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
