//! The middleware that sends each request to an endpoint that can serve it.
//!
//! A [`RouteLayer`] reads the demand of a request and waits for a slot of one of its [`Endpoints`]. It passes the
//! choice to the inner service as a [`Decision`] in the request's extensions. If a request fails before any part of a
//! response went out, the layer tries it again at another endpoint. With the feature `client`, `upstream::Forward` is
//! an inner service that sends the request on.
//!
//! [`RoutingConfig`] has the settings of aliases, fallbacks, strategy, retries and ejection. A [`RouterHandle`] reports
//! on the endpoints and the waiting room, and changes both while requests run.
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response, Uri};
//! use http_body_util::Full;
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage::RouteLayer;
//! use tower_triage::endpoints::{Decision, Endpoint, Model, Registry};
//! use tower_triage::route::{RouteBody, RoutingConfig};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gpu = Endpoint::new("gpu-1", Uri::from_static("http://127.0.0.1:9001"))
//!     .model(Model::new("llama3:8b"));
//! let layer = RouteLayer::builder(Registry::new(vec![gpu])?)
//!     .routing(RoutingConfig::default().alias("gpt-4", "llama3:8b"))
//!     .build();
//! let service = ServiceBuilder::new()
//!     .layer(layer)
//!     .service(service_fn(|request: Request<RouteBody<Full<Bytes>>>| async move {
//!         let decision = request.extensions().get::<Decision>().expect("set by the layer");
//!         let answer = format!("{} by {}", decision.model, decision.endpoint.name());
//!         Ok::<_, std::convert::Infallible>(Response::new(Full::from(answer)))
//!     }));
//!
//! let request = Request::post("/v1/chat/completions").body(Full::from(r#"{"model": "gpt-4"}"#))?;
//! let response = service.oneshot(request).await?;
//! assert_eq!(response.headers()["x-triage-model"], "llama3:8b");
//! # Ok(())
//! # }
//! ```
//!
//! [`Decision`]: crate::endpoints::Decision
//! [`Endpoints`]: crate::endpoints::Endpoints

mod at_most_once;
mod attempt;
mod builder;
mod client_wait;
mod extract;
mod failed_response;
mod future;
mod handle;
mod inner_service;
mod layer;
mod measure;
mod metrics;
#[cfg(feature = "swap")]
pub(crate) mod on_demand;
mod parsed_request;
mod request_body;
mod request_metrics;
mod response;
mod response_body;
mod response_class;
mod retry;
mod service;
mod shared;
#[cfg(test)]
mod tests;
mod token_meter;

pub use at_most_once::AtMostOnce;
pub use builder::{InvalidRoute, RouteLayerBuilder};
pub use future::RouteFuture;
pub use handle::RouterHandle;
pub use inner_service::{RoutableBody, RouteInner};
pub use layer::RouteLayer;
pub use request_body::RouteBody;
pub use response_body::RouteResponseBody;
pub use service::Route;

pub use crate::endpoints::config::{
    FairBy, InvalidRouting, RoutingConfig, RoutingWarning, StrategyChoice,
};
