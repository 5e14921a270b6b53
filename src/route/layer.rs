//! The layer that sends each request to an endpoint that can serve it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::handle::RouterHandle;
use super::service::{Desk, Route};
use super::{Endpoints, Router};
use crate::queue::ConfigError;
use crate::queue::common::Common;

/// Reads what each request asks, waits for a slot of an endpoint that can serve it, and tells the inner
/// service which: an [`EndpointRef`](super::EndpointRef) in the request's extensions.
///
/// The inner service gets the body whole, as a [`WholeBody`](super::WholeBody); with feature `client`,
/// `Forward` is one that sends it on. Every service that one layer value makes shares the same endpoints and
/// the same waiting room.
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use bytes::Bytes;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::RouteLayer;
/// use tower_triage::route::{Endpoint, EndpointRef, Model, Registry, Router, WholeBody};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"))
///     .model(Model::new("llama3:8b"));
/// let service = ServiceBuilder::new()
///     .layer(RouteLayer::new(Router::new(Registry::new(vec![gpu])?)))
///     .service(service_fn(|request: Request<WholeBody>| async move {
///         let endpoint = request.extensions().get::<EndpointRef>().unwrap();
///         let answer = format!("served by {}", endpoint.name());
///         Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(answer))))
///     }));
///
/// let request = Request::post("/v1/chat/completions")
///     .body(Full::new(Bytes::from(r#"{"model": "llama3:8b"}"#)))?;
/// let response = service.oneshot(request).await?;
/// assert_eq!(response.headers()["x-triage-endpoint"], "gpu-1");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RouteLayer(Arc<Desk>);

impl RouteLayer {
    /// A layer over the endpoints of `router`.
    ///
    /// # Panics
    ///
    /// If the router's queue configuration is invalid, with the field and what is allowed. One that comes
    /// from outside the program belongs into [`try_new`](Self::try_new).
    #[must_use]
    pub fn new(router: Router) -> Self {
        match Self::try_new(router) {
            Ok(layer) => layer,
            Err(error) => panic!("invalid `QueueConfig`: {error}"),
        }
    }

    /// A layer over the endpoints of `router`.
    ///
    /// # Errors
    ///
    /// If the router's queue configuration is invalid: which field, its value, and what is allowed.
    pub fn try_new(router: Router) -> Result<Self, ConfigError> {
        let endpoints = Endpoints::new(router.registry);
        let common = Common::new(endpoints, router.queue)?;
        Ok(Self(Arc::new(Desk::new(common, router.body_limit))))
    }

    /// Closes the waiting room when `token` is cancelled: everyone who waits is answered at once, and so is
    /// everyone who comes; running requests finish.
    #[must_use]
    pub fn shutdown(self, token: CancellationToken) -> Self {
        self.0.common.shut_down_with(token);
        self
    }

    /// Reports on the endpoints and the waiting room, and changes them while they are in use.
    #[must_use]
    pub fn handle(&self) -> RouterHandle {
        RouterHandle(Arc::clone(&self.0))
    }
}

impl<S> Layer<S> for RouteLayer {
    type Service = Route<S>;

    fn layer(&self, inner: S) -> Route<S> {
        Route::new(inner, Arc::clone(&self.0))
    }
}
