//! The middleware that sends each request to an endpoint that can serve it.
//!
//! A [`RouteLayer`] reads what a request asks, waits for a slot of one of its [`Endpoints`], and tells the inner
//! service which endpoint that is: a [`Decision`] in the request's extensions. A request that failed before anything
//! of its response went out is tried again at another endpoint. With feature `client`, `upstream::Forward` is an
//! inner service that sends the request on.
//!
//! [`RoutingConfig`] has the aliases, fallbacks, strategy, retries and ejection; a [`RouterHandle`] reports on the
//! endpoints and the waiting room and changes both while requests run.
//!
//! [`Decision`]: crate::endpoints::Decision
//! [`Endpoints`]: crate::endpoints::Endpoints

mod arrival;
mod attempt;
mod builder;
mod conclusion;
mod config;
mod extract;
mod future;
mod handle;
mod layer;
mod metrics;
mod request_body;
mod request_metrics;
mod response_body;
mod response_class;
mod retry;
mod service;
mod shared;
mod shell;
#[cfg(test)]
mod tests;
mod unread;

pub use builder::RouteLayerBuilder;
pub use config::{InvalidRoute, InvalidRouting, RoutingConfig, RoutingWarning, StrategyChoice};
pub use future::RouteFuture;
pub use handle::RouterHandle;
pub use layer::RouteLayer;
pub use request_body::RouteBody;
pub use response_body::Measured;
pub use service::Route;
