//! Choosing an endpoint first and counting the request later lets everyone who chooses meanwhile choose
//! the same one.
//!
//! [`Endpoints`] takes the slot it saw when it chose, or chooses again. Who may serve a request, and who
//! is preferred, is read from a snapshot that no writer blocks; nothing is allocated on the way.

mod change;
mod endpoint_ref;
mod fleet;
mod lane;
mod served;
mod way;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;

pub use change::Changes;
pub use endpoint_ref::EndpointRef;
pub(in crate::route) use endpoint_ref::Live;
use fleet::Fleet;
pub(in crate::route) use lane::Asks;
pub use lane::Lane;
pub(in crate::route) use served::Server;
use way::Found;

use super::availability::Shift;
use super::{Decision, Registry, Requirements, RouteError, RoutingConfig};
use crate::admit::{Capacity, LeaseError, Partition, PoolId, PoolSet};

/// Many endpoints as one capacity: a [`PoolId`] of slots for each.
///
/// A request's model is tried first, or what its name is an alias of; then the fallbacks, in order. Among the
/// endpoints that are well, can do what is asked and have a slot free, the strategy chooses.
///
/// A demand that no endpoint can serve, or none that is well, is denied for good: it never waits. While the only
/// ones left are out of service because they failed, it waits for them as for a slot. Demands
/// wait in one lane if they ask for the same name with the same capabilities, and if the same endpoints
/// have room for their tokens.
#[derive(Debug)]
pub struct Endpoints {
    fleet: ArcSwap<Fleet>,
    /// Held by the one who changes the fleet.
    changing: Mutex<()>,
    /// Held while an endpoint is taken out of service because it failed. No decision waits for it.
    ejecting: Mutex<()>,
    leased: AtomicU64,
    /// Whether endpoints get one request at a time until something is heard of them. Only a router hears.
    answers_first: bool,
    /// A trial ended without a verdict, and somebody may wait for the next.
    trial_abandoned: AtomicBool,
}

impl Endpoints {
    /// The endpoints of `registry`, all well and idle, routed by the defaults of [`RoutingConfig`].
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self::routed(registry, RoutingConfig::default(), false)
    }

    /// What to ask of this capacity for a request that has these `requirements`.
    ///
    /// Copies the name only if nobody has heard of it.
    #[must_use]
    pub fn demand(&self, requirements: &Requirements<'_>) -> Demand {
        self.fleet.load().demand(requirements)
    }

    /// Every endpoint with its live numbers, in the registry's order.
    #[must_use]
    pub fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.fleet.load().endpoints.clone()
    }

    /// What is configured.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.fleet.load().registry.clone()
    }

    /// How requests are routed.
    #[must_use]
    pub fn routing(&self) -> Arc<RoutingConfig> {
        self.fleet.load().routing.clone()
    }

    /// What is configured of retries.
    pub(super) fn retries(&self) -> Retries {
        let fleet = self.fleet.load();
        Retries {
            max: fleet.routing.max_retries,
            body_limit: fleet.routing.retry_body_limit_bytes,
        }
    }

    /// Whether `name` is a model, an alias, or has fallbacks.
    #[cfg(feature = "metrics")]
    pub(super) fn is_configured(&self, name: &str) -> bool {
        self.fleet.load().is_configured(name)
    }

    /// Whether an endpoint could serve `demand`, now or when it has a slot free.
    pub(super) fn could_serve(&self, demand: &Demand) -> bool {
        !self.fleet.load().pools(&demand.wish).is_empty()
    }

    /// Takes `endpoint` out of service because it failed. `None` if it has to stay, because too many are out
    /// so already, or no other would be left.
    pub(super) fn eject(&self, endpoint: &EndpointRef) -> Option<Shift> {
        // Of two that fail at the same instant, the second must see that the first is out.
        let _alone = self.ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        let may = self.fleet.load().may_eject(endpoint);
        may.then(|| endpoint.live().availability.eject())
    }

    /// `endpoint` has been left alone for long enough: the next request may try it.
    pub(super) fn put_on_trial(&self, endpoint: &EndpointRef) {
        endpoint.live().availability.put_on_trial();
        self.fleet.load().expect_trial(endpoint);
    }

    /// Whether a trial ended without a verdict since this was last asked.
    pub(super) fn trial_was_abandoned(&self) -> bool {
        self.trial_abandoned.load(Relaxed) && self.trial_abandoned.swap(false, SeqCst)
    }
}

/// What is configured of retries.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retries {
    pub(super) max: u32,
    /// In bytes.
    pub(super) body_limit: usize,
}

impl Capacity for Endpoints {
    type Demand = Demand;
    type Lease = EndpointLease;
    type Lane = Lane;
    type Unservable = RouteError;

    fn try_lease(&self, demand: &Demand) -> Result<EndpointLease, LeaseError<RouteError>> {
        let fleet = self.fleet.load();
        let taken = fleet.take(demand)?;
        self.leased.fetch_add(1, Relaxed);
        Ok(EndpointLease {
            trial: taken.choice.candidate.is_trial(),
            called: None,
            decision: Decision {
                endpoint: taken.choice.candidate.endpoint.clone(),
                model: taken.step.model.clone(),
                asked: demand.wish.name.clone(),
                via: taken.step.via,
                strategy: taken.strategy,
                score: taken.choice.score,
                retries: demand.retries,
                nth_model: taken.choice.candidate.server.nth_model,
            },
        })
    }

    fn release(&self, lease: EndpointLease) -> PoolId {
        let live = lease.endpoint().live();
        if lease.trial && live.availability.give_trial_back() {
            self.trial_abandoned.store(true, SeqCst);
        }
        live.availability.slots.release();
        live.pool
    }

    fn pool(&self, lease: &EndpointLease) -> PoolId {
        lease.endpoint().pool()
    }

    fn lane(&self, demand: &Demand) -> Lane {
        self.fleet.load().lane(&demand.wish)
    }

    fn pools(&self, lane: &Lane) -> PoolSet {
        self.fleet.load().pools(lane)
    }

    fn partition(&self, lane: &Lane) -> Partition {
        self.fleet.load().partition(lane)
    }

    fn in_use(&self) -> usize {
        let fleet = self.fleet.load();
        let endpoints = fleet.endpoints.iter().chain(&fleet.leaving);
        endpoints
            .map(|endpoint| endpoint.in_flight() as usize)
            .sum()
    }

    fn limit(&self) -> usize {
        let fleet = self.fleet.load();
        let endpoints = fleet.endpoints.iter();
        endpoints.map(|endpoint| endpoint.limit() as usize).sum()
    }

    fn leased(&self) -> u64 {
        self.leased.load(Relaxed)
    }
}

/// What a request asks of [`Endpoints`]. Made by [`Endpoints::demand`].
#[derive(Debug, Clone)]
pub struct Demand {
    /// What it asks, to the token. In which lane that is depends on the contexts that there are.
    wish: Lane,
    /// Where the way of its name was when it was made.
    way: Option<Found>,
    prefix: Option<u64>,
    retries: u32,
}

impl Demand {
    /// The name that is asked for.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.wish.name
    }

    pub(super) fn name(&self) -> Arc<str> {
        self.wish.name.clone()
    }

    /// The same once more, after it failed at `endpoint`: for another one.
    pub(super) fn again(mut self, endpoint: &EndpointRef) -> Self {
        self.wish = self.wish.failed_at(endpoint.pool());
        self.retries += 1;
        self
    }
}

/// One slot of one endpoint. It is given back with [`Capacity::release`].
#[derive(Debug)]
#[must_use = "a lease that is not released counts forever"]
pub struct EndpointLease {
    pub(super) decision: Decision,
    /// Whether the endpoint is tried with this request, and nothing is known yet.
    pub(super) trial: bool,
    /// When its request was passed on.
    pub(super) called: Option<Instant>,
}

impl EndpointLease {
    /// What was decided, and why.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The endpoint whose slot it is.
    #[must_use]
    pub fn endpoint(&self) -> &EndpointRef {
        &self.decision.endpoint
    }

    /// The model that it serves with it.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.decision.model
    }
}

#[cfg(test)]
mod tests;
