//! Choosing an endpoint first and counting the request later lets everyone who chooses meanwhile choose
//! the same one.
//!
//! [`Endpoints`] takes the slot it saw when it chose, or chooses again. Who may serve a request, and who
//! is preferred, is read from a snapshot that no writer blocks; nothing is allocated on the way.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;

use super::availability::Shift;
use super::resolve::Found;
use super::table::Fleet;
use super::{Decision, EndpointRef, Lane, Registry, Requirements, RouteError, RoutingRules};
use crate::{Capacity, LeaseError, Partition, PoolId, PoolSet};

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
    pub(super) fleet: ArcSwap<Fleet>,
    /// Held by the one who changes the fleet.
    pub(super) changing: Mutex<()>,
    /// Held while an endpoint is taken out of service because it failed. No decision waits for it.
    pub(super) ejecting: Mutex<()>,
    pub(super) leased: AtomicU64,
    /// Whether endpoints get one request at a time until something is heard of them. Only a router hears.
    pub(super) answers_first: bool,
    /// A trial ended without a verdict, and somebody may wait for the next.
    pub(super) trial_abandoned: AtomicBool,
}

impl Endpoints {
    /// The endpoints of `registry`, all well and idle, by the default [`RoutingRules`].
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self::routed(registry, RoutingRules::default(), false)
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

    /// Whether `name` is a model, an alias, or has fallbacks.
    #[cfg(feature = "metrics")]
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.fleet.load().is_configured(name)
    }

    /// Whether an endpoint could serve `demand`, now or when it has a slot free.
    pub(crate) fn could_serve(&self, demand: &Demand) -> bool {
        !self.fleet.load().pools(&demand.wish).is_empty()
    }

    /// Takes `endpoint` out of service because it failed. `None` if it has to stay, because too many are out
    /// so already, or no other would be left.
    pub(crate) fn eject(&self, endpoint: &EndpointRef) -> Option<Shift> {
        // Of two that fail at the same instant, the second must see that the first is out.
        let _alone = self.ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        let may = self.fleet.load().may_eject(endpoint);
        may.then(|| endpoint.live().availability.eject())
    }

    /// `endpoint` has been left alone for long enough: the next request may try it.
    pub(crate) fn put_on_trial(&self, endpoint: &EndpointRef) {
        endpoint.live().availability.put_on_trial();
        self.fleet.load().expect_trial(endpoint);
    }

    /// Whether a trial ended without a verdict since this was last asked.
    pub(crate) fn trial_was_abandoned(&self) -> bool {
        self.trial_abandoned.load(Relaxed) && self.trial_abandoned.swap(false, SeqCst)
    }
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
    pub(super) wish: Lane,
    /// Where the way of its name was when it was made.
    pub(super) way: Option<Found>,
    pub(super) prefix: Option<u64>,
    pub(super) retries: u32,
}

impl Demand {
    /// The name that is asked for.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.wish.name
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.wish.name.clone()
    }

    /// The same once more, after it failed at `endpoint`: for another one.
    pub(crate) fn again(mut self, endpoint: &EndpointRef) -> Self {
        self.wish = self.wish.failed_at(endpoint.pool());
        self.retries += 1;
        self
    }
}

/// One slot of one endpoint. It is given back with [`Capacity::release`].
#[derive(Debug)]
#[must_use = "a lease that is not released counts forever"]
pub struct EndpointLease {
    pub(crate) decision: Decision,
    /// Whether the endpoint is tried with this request, and nothing is known yet.
    pub(crate) trial: bool,
    /// When its request was passed on.
    pub(crate) called: Option<Instant>,
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
