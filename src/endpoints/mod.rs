//! Many backends as one capacity, with a strategy that picks an endpoint for each request.
//!
//! A [`Registry`] lists each [`Endpoint`] and the [`Model`]s that it serves. [`Endpoints`] makes a [`Capacity`] of it, so that
//! one step chooses an endpoint and takes its slot. A request states its [`Requirements`]. If they cannot be met, a
//! [`RouteError`] tells the client why.
//!
//! ```
//! use tower_triage::admit::Capacity;
//! use tower_triage::endpoints::{Endpoint, Endpoints, Model, Registry, Requirements};
//!
//! let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"))
//!     .max_concurrent(1)
//!     .model(Model::new("llama3:8b"));
//! let endpoints = Endpoints::new(Registry::new(vec![gpu])?);
//!
//! let demand = endpoints.demand(&Requirements::new("llama3:8b"));
//! let lease = endpoints.try_lease(&demand).expect("a slot is free");
//! assert_eq!(lease.endpoint().name(), "gpu-1");
//! assert!(endpoints.try_lease(&demand).is_err()); // its only slot is taken
//! endpoints.release(lease);
//! # Ok::<(), tower_triage::endpoints::InvalidRegistry>(())
//! ```
//!
//! [`Capacity`]: crate::admit::Capacity

mod backends;
mod capacity;
mod change;
pub(crate) mod config;
mod decision;
pub(crate) mod ejection;
mod endpoint;
mod endpoint_limiter;
mod endpoint_ref;
mod endpoint_word;
mod engine;
mod error;
mod health;
pub(crate) mod health_check;
mod lane;
pub(crate) mod latency;
#[cfg(feature = "serde")]
mod max_concurrent;
#[cfg_attr(
    not(feature = "swap"),
    allow(dead_code, reason = "`SwapLayer` uses the rest")
)]
pub(crate) mod on_demand;
pub(crate) mod params;
mod refusals;
mod registry;
mod requirements;
mod resolve;
mod slot_lease;
pub(crate) mod strategy;
mod table;
mod tenants;

#[cfg(test)]
mod tests;

pub use capacity::{Demand, EndpointLease, Endpoints};
pub use change::Changes;
pub(crate) use config::{Alias, RoutingConfig};
pub use config::{ModelRoom, RoutingRules};
pub use decision::{Decision, ErrorInBody, NoResponse, Via};
pub use endpoint::{Endpoint, Model};
pub use endpoint_ref::EndpointRef;
pub(crate) use endpoint_word::{HealthChange, HealthFlags};
pub use engine::{EngineLoad, EngineMetrics};
pub use error::RouteError;
pub use health::{EndpointHealth, HealthState};
pub use health_check::HealthCheck;
pub use lane::Lane;
#[cfg(feature = "serde")]
pub use max_concurrent::MaxConcurrent;
pub use params::{InvalidParam, SetParams};
pub(crate) use refusals::RefusalBound;
pub use registry::{InvalidRegistry, Registry};
pub use requirements::Requirements;
pub(crate) use requirements::TokenBounds;
pub use resolve::FallbackWhen;
pub use strategy::{Candidate, Candidates, Choice, Strategy, Weights};
pub(crate) use table::RoutingTable;
