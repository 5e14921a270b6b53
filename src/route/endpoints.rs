//! Choosing an endpoint first and counting the request later lets everyone who chooses meanwhile choose
//! the same one.
//!
//! [`Endpoints`] takes the slot it saw when it chose, or chooses again. Who may serve a request, and who
//! is preferred, is read from a snapshot that no writer blocks; nothing is allocated on the way.

mod endpoint_ref;
mod fleet;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwap;

pub use endpoint_ref::EndpointRef;
use fleet::Fleet;

use super::capabilities::Capabilities;
use super::{Registry, Requirements, RouteError};
use crate::{Capacity, Denied, Pool, Pools};

/// Many endpoints as one capacity: a [`Pool`] of slots for each.
///
/// Among the endpoints that are healthy, can do what is asked and have a slot free, those with the lowest
/// `priority` number are preferred; among these the one with the largest share of its slots free; among
/// equals the first in the registry.
///
/// A demand that no endpoint can serve, or no healthy one, is denied for good: it never waits. Demands
/// wait in one lane if they ask for the same model with the same capabilities, and if the same endpoints
/// have room for their tokens.
#[derive(Debug)]
pub struct Endpoints {
    fleet: ArcSwap<Fleet>,
    leased: AtomicU64,
}

impl Endpoints {
    /// The endpoints of `registry`, all healthy and idle.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self {
            fleet: ArcSwap::from_pointee(Fleet::new(registry)),
            leased: AtomicU64::new(0),
        }
    }

    /// What to ask of this capacity for a request that has these `requirements`.
    ///
    /// Copies the model's name only if no endpoint has it.
    #[must_use]
    pub fn demand(&self, requirements: &Requirements<'_>) -> Demand {
        self.fleet.load().demand(requirements)
    }

    /// Every endpoint with its live numbers, in the registry's order.
    #[must_use]
    pub fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.fleet.load().endpoints()
    }

    /// What is configured.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.fleet.load().registry()
    }
}

impl Capacity for Endpoints {
    type Demand = Demand;
    type Lease = EndpointLease;
    type Lane = Lane;
    type Never = RouteError;

    fn try_lease(&self, demand: &Demand) -> Result<EndpointLease, Denied<RouteError>> {
        let fleet = self.fleet.load();
        loop {
            let (endpoint, seen) = fleet.choose(&demand.lane)?;
            if endpoint.slots().take(seen) {
                self.leased.fetch_add(1, Relaxed);
                return Ok(EndpointLease {
                    endpoint: endpoint.clone(),
                    model: demand.lane.model.clone(),
                });
            }
        }
    }

    fn release(&self, lease: EndpointLease) -> Pool {
        lease.endpoint.slots().release();
        lease.endpoint.pool()
    }

    fn pool(&self, lease: &EndpointLease) -> Pool {
        lease.endpoint.pool()
    }

    fn lane(&self, demand: &Demand) -> Lane {
        demand.lane.clone()
    }

    /// Those of unhealthy endpoints, too: one that is healthy again serves the lanes that it served.
    fn pools(&self, lane: &Lane) -> Pools {
        self.fleet.load().pools(lane)
    }

    fn in_use(&self) -> usize {
        let fleet = self.fleet.load();
        fleet
            .iter()
            .map(|endpoint| endpoint.in_flight() as usize)
            .sum()
    }

    fn limit(&self) -> usize {
        let fleet = self.fleet.load();
        fleet.iter().map(|endpoint| endpoint.limit() as usize).sum()
    }

    fn leased(&self) -> u64 {
        self.leased.load(Relaxed)
    }
}

/// What a request asks of [`Endpoints`]. Made by [`Endpoints::demand`].
#[derive(Debug, Clone)]
pub struct Demand {
    lane: Lane,
}

impl Demand {
    /// The model that is asked for.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.lane.model
    }
}

/// What demands share that the same endpoints can serve.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    model: Arc<str>,
    needs: Capabilities,
    /// The shortest context of the model's endpoints that is long enough, so that equal lanes are served
    /// by equal endpoints although their tokens differ.
    context_length: u32,
}

/// One slot of one endpoint. It is given back with [`Capacity::release`].
#[derive(Debug)]
#[must_use = "a lease that is not released counts forever"]
pub struct EndpointLease {
    endpoint: EndpointRef,
    model: Arc<str>,
}

impl EndpointLease {
    /// The endpoint whose slot it is.
    #[must_use]
    pub fn endpoint(&self) -> &EndpointRef {
        &self.endpoint
    }

    /// The model that it serves with it.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }
}

#[cfg(test)]
mod tests;
