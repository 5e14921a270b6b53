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
use super::shared::Desk;
use super::shell::ReadyState;
use super::{RouteBody, RouteResponseBody};
use crate::endpoints::Endpoints;
use crate::gate::Permit;
use crate::http::PermitBody;

/// Sends each request to an endpoint that can serve it. Made by [`RouteLayer`](super::RouteLayer).
///
/// A chair that was reserved by `poll_ready` (with `overflow = "backpressure"`) belongs to the clone that was
/// asked: a clone of it starts without.
pub struct Route<S> {
    inner: S,
    desk: Arc<Desk>,
    seat: ReadyState<Endpoints>,
}

impl<S> Route<S> {
    pub(super) fn new(inner: S, desk: Arc<Desk>) -> Self {
        Self {
            inner,
            desk,
            seat: ReadyState::None,
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
        RouterHandle(Arc::clone(&self.desk))
    }
}

impl<S, B, R> Service<Request<B>> for Route<S>
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes>,
{
    type Response = Response<PermitBody<RouteResponseBody<R>, Permit<Endpoints>>>;
    type Error = S::Error;
    type Future = RouteFuture<S, B, R>;

    /// Always ready, so that a full room can answer; with `overflow = "backpressure"`, ready once a chair is
    /// reserved for the call that follows.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.seat.poll_ready(&self.desk.common, cx).map(Ok)
    }

    fn call(&mut self, request: Request<B>) -> RouteFuture<S, B, R> {
        let chair = self.seat.take();
        RouteFuture::new(Arc::clone(&self.desk), self.inner.clone(), chair, request)
    }
}

impl<S: Clone> Clone for Route<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            desk: Arc::clone(&self.desk),
            // A reserved chair is one request's; the clone reserves its own.
            seat: ReadyState::None,
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Route<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("inner", &self.inner)
            .field("desk", &self.desk)
            .finish_non_exhaustive()
    }
}
