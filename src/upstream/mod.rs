//! The HTTP client of a router: [`Forward`] sends a routed request to its endpoint, and [`HealthChecks`] check the
//! endpoints.
//!
//! ```no_run
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use tower::ServiceBuilder;
//! use tower_triage::RouteLayer;
//! use tower_triage::endpoints::{Endpoint, HealthCheck, Model, Registry};
//! use tower_triage::route::RouteBody;
//! use tower_triage::upstream::Forward;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"))
//!     .health(HealthCheck::default())
//!     .model(Model::new("llama3:8b"));
//! let layer = RouteLayer::builder(Registry::new(vec![gpu])?).build();
//! let forward = Forward::<RouteBody<Full<Bytes>>>::new();
//! let checks = forward.checks(&layer.handle());
//! let gateway = ServiceBuilder::new().layer(layer).service(forward);
//! checks.first_results().await;
//! // ... serve; an endpoint that is down gets no request
//! # drop((checks, gateway));
//! # Ok(())
//! # }
//! ```

mod body;
mod connect;
mod connection;
mod failure;
mod forward;
mod future;
mod headers;
mod health;
mod lookups;
mod target;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod upload;

pub use body::{BodyError, ForwardBody};
pub use forward::{Forward, PeerAddr};
pub use future::ForwardFuture;
pub use health::HealthChecks;
#[cfg(feature = "tls")]
pub use tls::TlsError;
