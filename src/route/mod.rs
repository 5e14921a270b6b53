//! Without routing, a gateway in front of many backends sends a request to one that is busy, or that
//! has never heard of its model, while another one idles.
//!
//! A [`Registry`] says which [`Endpoint`] serves which [`Model`]. [`Endpoints`] makes a [`Capacity`] of
//! it: one pool of slots per endpoint, where choosing an endpoint and taking its slot are one step.
//! [`Requirements`] are what a request asks, read from its body, and [`RouteError`] is why nobody can
//! serve it. [`RouteLayer`] brings them together in front of a service that sends requests on; with feature
//! `client`, `Forward` is one.
//!
//! [`Capacity`]: crate::admit::Capacity

mod arrival;
mod availability;
mod body;
mod capabilities;
mod conclusion;
mod decision;
mod desk;
mod ejection;
mod endpoint;
mod endpoints;
mod error;
#[cfg(feature = "client")]
mod forward;
mod front;
mod future;
mod handle;
mod health;
mod hop_by_hop;
mod json;
mod latency;
mod layer;
mod measured;
mod meter;
mod registry;
mod request_body;
mod requirements;
mod retry;
mod router;
mod routing;
mod service;
mod signs_of_life;
mod slots;
mod source;
mod strategy;
mod tally;
mod unanswered;
mod unread;
mod verdict;

pub use body::ReadBody;
pub use decision::{Decision, Via};
pub use endpoint::{Endpoint, Model};
pub use endpoints::{Changes, Demand, EndpointLease, EndpointRef, Endpoints, Lane};
pub use error::RouteError;
#[cfg(feature = "tls")]
pub use forward::TlsError;
#[cfg(feature = "client")]
pub use forward::{BodyError, Forward, ForwardBody, ForwardFuture, PeerAddr};
pub use future::RouteFuture;
pub use handle::RouterHandle;
pub use health::HealthCheck;
#[cfg(feature = "client")]
pub use health::HealthChecks;
pub use layer::RouteLayer;
pub use measured::Measured;
pub use registry::{InvalidRegistry, Registry};
pub use request_body::RouteBody;
pub use requirements::Requirements;
pub use router::Router;
pub use routing::{
    FallbackWhen, InvalidRoute, InvalidRouting, ModelRoom, RoutingConfig, RoutingWarning,
    StrategyChoice, Weights,
};
pub use service::Route;
pub use strategy::{Candidate, Candidates, Choice, Strategy};
pub use unanswered::Unanswered;
