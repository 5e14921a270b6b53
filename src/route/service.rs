//! The service that sends each request to an endpoint that can serve it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use tower_service::Service;

use super::future::RouteFuture;
use super::handle::RouterHandle;
use super::{EndpointLease, Endpoints, RouteError, WholeBody};
use crate::admission::{self, Tail};
use crate::admit::Rejected;
use crate::gate::{Gate, Permit};
use crate::http::{Explain, PermitBody};
use crate::queue::common::Common;
use crate::queue::protocol::pass_on;
use crate::queue::seat::Seat;

/// What all services of one layer share.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(super) common: Arc<Common<Endpoints>>,
    pub(super) body_limit: usize,
    /// How many were rejected, by code.
    rejected: Mutex<BTreeMap<&'static str, u64>>,
}

impl Desk {
    pub(super) fn new(common: Arc<Common<Endpoints>>, body_limit: usize) -> Self {
        Self {
            common,
            body_limit,
            rejected: Mutex::default(),
        }
    }

    pub(super) fn rejected(&self) -> BTreeMap<&'static str, u64> {
        let rejected = self.rejected.lock();
        rejected.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers a request that no endpoint serves.
    pub(super) fn refuse<R>(
        &self,
        headers: &HeaderMap,
        why: &Rejected<RouteError>,
        waited: Duration,
    ) -> Response<PermitBody<R, Permit<Endpoints>>> {
        let rejection = self.common.with_retry_after(why.explain());
        tracing::debug!(reason = %why, ?waited, "request rejected");
        let mut rejected = self.rejected.lock().unwrap_or_else(PoisonError::into_inner);
        *rejected.entry(rejection.code()).or_default() += 1;
        drop(rejected);
        let response = self.common.write(rejection, headers, waited, None);
        response.map(PermitBody::rejection)
    }
}

/// The front desk of one request.
pub(super) struct Front(pub(super) Arc<Desk>);

impl<S, R> admission::Desk<Endpoints, Request<WholeBody>, S> for Front
where
    S: Service<Request<WholeBody>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Answer = Result<Response<PermitBody<R, Permit<Endpoints>>>, S::Error>;
    /// Though every chair is taken, an endpoint may be free for one who comes: nobody is turned away unseen.
    type Notice = Infallible;

    fn gate(&self) -> &Gate<Endpoints> {
        &self.0.common.gate
    }

    fn seat(&self, request: &mut Request<WholeBody>, lease: &EndpointLease, _: Duration) {
        seat(request, lease);
    }

    fn refuse(
        &self,
        request: Request<WholeBody>,
        why: Rejected<RouteError>,
        waited: Duration,
    ) -> Self::Answer {
        Ok(self.0.refuse(request.headers(), &why, waited))
    }

    fn turned_away(notice: Infallible) -> Self::Answer {
        match notice {}
    }

    fn answer(
        tail: Tail,
        result: Result<Response<R>, S::Error>,
        permit: Option<Permit<Endpoints>>,
        waited: Duration,
    ) -> Self::Answer {
        let mut response = result?;
        if let Some(permit) = &permit {
            let lease = permit.lease();
            let headers = response.headers_mut();
            headers.insert("x-triage-endpoint", lease.endpoint().header_value().clone());
            if let Ok(model) = HeaderValue::from_str(lease.model()) {
                headers.insert("x-triage-model", model);
            }
        }
        Ok(pass_on(response, permit, waited, tail))
    }
}

/// Tells the inner service where the request goes.
pub(super) fn seat(request: &mut Request<WholeBody>, lease: &EndpointLease) {
    request.extensions_mut().insert(lease.endpoint().clone());
}

/// Sends each request to an endpoint that can serve it. Made by [`RouteLayer`](super::RouteLayer).
///
/// A chair that was reserved by `poll_ready` (with `overflow = "backpressure"`) belongs to the clone that was
/// asked: a clone of it starts without.
pub struct Route<S> {
    inner: S,
    desk: Arc<Desk>,
    seat: Seat<Endpoints>,
}

impl<S> Route<S> {
    pub(super) fn new(inner: S, desk: Arc<Desk>) -> Self {
        desk.common.watch_shutdown();
        Self {
            inner,
            desk,
            seat: Seat::None,
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
    S: Service<Request<WholeBody>, Response = Response<R>> + Clone,
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes>,
{
    type Response = Response<PermitBody<R, Permit<Endpoints>>>;
    type Error = S::Error;
    type Future = RouteFuture<S, B>;

    /// Always ready, so that a full room can answer; with `overflow = "backpressure"`, ready once a chair is
    /// reserved for the call that follows.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.seat.poll_ready(&self.desk.common, cx).map(Ok)
    }

    fn call(&mut self, request: Request<B>) -> RouteFuture<S, B> {
        self.desk.common.watch_shutdown();
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
            seat: Seat::None,
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
