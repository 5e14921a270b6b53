//! The service that sends each request to an endpoint that can serve it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::desk::Desk;
use super::future::RouteFuture;
use super::handle::RouterHandle;
use super::{Endpoints, Measured, RouteBody};
use crate::gate::{Permit, Reservation, Shared};
use crate::http::PermitBody;
use crate::service::ReadyState;

/// Sends each request to an endpoint that can serve it. Made by [`RouteLayer`](super::RouteLayer).
///
/// A place in the waiting room that was reserved by `poll_ready` (with `overflow = "backpressure"`) belongs to the
/// clone that was polled: a clone of it starts without.
pub struct Route<S> {
    inner: S,
    desk: Arc<Desk>,
    ready: ReadyState<Shared<Endpoints>>,
}

impl<S> Route<S> {
    pub(super) fn new(inner: S, desk: Arc<Desk>) -> Self {
        Self {
            inner,
            desk,
            ready: ReadyState::Idle,
        }
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
    type Response = Response<PermitBody<Measured<R>, Permit<Endpoints>>>;
    type Error = S::Error;
    type Future = RouteFuture<S, B, R>;

    /// Always ready, so that a full room can answer; with `overflow = "backpressure"`, ready once a place in the
    /// waiting room is reserved for the call that follows.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if !self.desk.common.has_backpressure() {
            return Poll::Ready(Ok(()));
        }
        let gate = self.desk.common.gate.shared();
        self.ready.poll_reserve(gate, cx).map(Ok)
    }

    fn call(&mut self, request: Request<B>) -> RouteFuture<S, B, R> {
        let reservation = self.ready.take().map(Reservation);
        RouteFuture::new(
            Arc::clone(&self.desk),
            self.inner.clone(),
            reservation,
            request,
        )
    }
}

impl<S: Clone> Clone for Route<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            desk: Arc::clone(&self.desk),
            // A reservation is for one request; the clone makes its own.
            ready: ReadyState::Idle,
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
