//! Without routing, a gateway in front of many backends sends a request to one that is busy, or that
//! has never heard of its model, while another one idles.
//!
//! A [`Registry`] says which [`Endpoint`] serves which [`Model`]. [`Endpoints`] makes a [`Capacity`] of
//! it: one pool of slots per endpoint, where choosing an endpoint and taking its slot are one step.
//! [`Requirements`] are what a request asks, read from its body, and [`RouteError`] is why nobody can
//! serve it. With feature `client`, `Forward` sends the request to the endpoint that was chosen.
//!
//! [`Capacity`]: crate::Capacity

mod body;
mod capabilities;
mod endpoint;
mod endpoints;
mod error;
#[cfg(feature = "client")]
mod forward;
mod json;
mod registry;
mod requirements;
mod slots;

pub use body::ReadBody;
pub use endpoint::{Endpoint, Model};
pub use endpoints::{Demand, EndpointLease, EndpointRef, Endpoints, Lane};
pub use error::RouteError;
#[cfg(feature = "client")]
pub use forward::{BodyError, Forward, ForwardBody, ForwardFuture, PeerAddr};
pub use registry::{Registry, RegistryError};
pub use requirements::Requirements;
