//! Without routing, a gateway in front of many backends sends a request to one that is busy, or that
//! has never heard of its model, while another one idles.
//!
//! A [`Registry`] says which [`Endpoint`] serves which [`Model`]. [`Endpoints`] makes a [`Capacity`] of
//! it: one pool of slots per endpoint, where choosing an endpoint and taking its slot are one step.
//! [`Requirements`] are what a request asks, read from its body, and [`RouteError`] is why nobody can
//! serve it. [`RouteLayer`] brings them together in front of a service that sends requests on; with feature
//! `client`, `Forward` is one.
//!
//! [`Capacity`]: crate::Capacity

mod body;
mod capabilities;
mod endpoint;
mod endpoints;
mod error;
#[cfg(feature = "client")]
mod forward;
mod future;
mod handle;
mod hop_by_hop;
mod json;
mod layer;
mod registry;
mod requirements;
mod router;
mod service;
mod slots;
mod unanswered;
mod whole;

pub use body::ReadBody;
pub use endpoint::{Endpoint, Model};
pub use endpoints::{Demand, EndpointLease, EndpointRef, Endpoints, Lane};
pub use error::RouteError;
#[cfg(feature = "tls")]
pub use forward::TlsError;
#[cfg(feature = "client")]
pub use forward::{BodyError, Forward, ForwardBody, ForwardFuture, PeerAddr};
pub use future::RouteFuture;
pub use handle::RouterHandle;
pub use layer::RouteLayer;
pub use registry::{Registry, RegistryError};
pub use requirements::Requirements;
pub use router::Router;
pub use service::Route;
pub use unanswered::Unanswered;
pub use whole::WholeBody;
