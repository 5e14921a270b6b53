//! The bounds on the inner service of a route and on its requests. Their compiler messages say how to meet them.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::future::Attempts;
use super::response_body::{BoxError, Routed};
use super::traced::Traced;
use super::{Route, RouteBody};
use crate::implies::Implies;

/// An inner service of a [`Route`], for requests with bodies of type `B`.
///
/// It is implemented for every `Clone` service that takes an `http::Request<`[`RouteBody`]`<B>>` and returns an
/// `http::Response` with a body of [`Bytes`], whose error fits into a box. The service, its future, its error and both bodies are `Send` and borrow
/// nothing, because a response may [begin while its request waits](crate::QueueLayer#status-while-waiting).
///
/// A service that can't be cloned, such as a rate limit, needs a buffer in front of it. Without a buffer, this does not
/// compile:
///
/// ```compile_fail,E0277
/// # use std::convert::Infallible;
/// # use std::time::Duration;
/// # use http::{Request, Response};
/// # use tower::{ServiceBuilder, ServiceExt, service_fn};
/// # use tower_triage::{RouteLayer, route::RouteBody};
/// # async fn send(layer: RouteLayer, request: Request<String>) {
/// let service = ServiceBuilder::new()
///     .layer(layer)
///     .rate_limit(100, Duration::from_secs(1))
///     .service(service_fn(|_: Request<RouteBody<String>>| async {
///         Ok::<_, Infallible>(Response::new(String::new()))
///     }));
/// let response = service.oneshot(request).await;
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be the inner service of a `Route` of requests with bodies of type `{B}`",
    label = "the inner service does not fit the route",
    note = "the inner service of a `RouteLayer` is a `Service<http::Request<tower_triage::route::RouteBody<_>>>` that returns an `http::Response` with a body of `Bytes`",
    note = "it must be `Clone`, because each attempt at a request uses a clone; put `tower::buffer::BufferLayer` before a service that is not",
    note = "the service, its future and error and the bodies must be `Send` and borrow nothing: a response may begin while its request waits"
)]
pub trait RouteInner<B>: Sized {
    /// The body of a response from the inner service.
    type Body;
    /// The error of the inner service.
    type Error;
    /// The future that resolves with the route's response.
    #[doc(hidden)]
    type Attempts: Future<Output = Result<Routed<Self::Body>, Self::Error>>;

    #[doc(hidden)]
    fn start(route: &mut Route<Self>, request: Request<B>) -> Self::Attempts;
}

#[diagnostic::do_not_recommend]
impl<S, B, R> RouteInner<B> for S
where
    S: Service<Request<RouteBody<B>>, Response = Response<R>> + RoutableService<B, R>,
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = R;
    type Error = S::Error;
    type Attempts = Attempts<Traced<S>, B, R>;

    #[inline]
    fn start(route: &mut Route<Self>, request: Request<B>) -> Self::Attempts {
        let prepared = route.ready.take();
        let inner = Traced::new(route.inner.clone());
        let shared = Arc::clone(&route.shared);
        Attempts::new(shared, inner, prepared, request)
    }
}

/// The bounds on an inner service whose responses have bodies of type `R`.
pub trait RoutableService<B, R>:
    Service<Request<RouteBody<B>>, Response = Response<R>, Error: Send, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S, B, R> RoutableService<B, R> for S where
    S: Service<Request<RouteBody<B>>, Response = Response<R>, Error: Send, Future: Send>
        + Clone
        + Send
        + 'static
{
}

/// The body of a request that a [`Route<S>`](Route) serves.
///
/// This trait is implemented for every body for which `S` is an [inner service](RouteInner).
pub trait RoutableBody<S>: Sized + Implies<S, Is: RouteInner<Self>> {}

impl<B, S: RouteInner<B>> RoutableBody<S> for B {}
