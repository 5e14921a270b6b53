//! Many endpoints as one capacity, with a pool of slots for each endpoint.
//!
//! A decision reads a [`RoutingTable`] without a lock or an allocation. It chooses an endpoint and then takes the slot that
//! it saw, or chooses again if that slot is gone.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;

use super::config::RoutingConfig;
use super::endpoint_ref::GateNotice;
use super::endpoint_word::{HealthChange, ProbeId};
use super::on_demand::{Launchers, OnDemand};
use super::requirements::TokenBounds;
use super::table::RoutingTable;
use super::{Decision, EndpointRef, Lane, Registry, Requirements, RouteError, RoutingRules};
use crate::admit::{
    Capacity, KeptSlots, LeaseError, OnDemandCapacity, Partition, PoolId, PoolSet, Priority,
    SlotState, SlotUsage,
};

/// Many endpoints as one capacity, with a pool of slots for each endpoint.
///
/// The strategy chooses among the endpoints that are healthy, have the capabilities and have a slot free. A demand is
/// unservable if every endpoint lacks something that it needs or is unhealthy, so it is rejected instead of waiting. If the
/// only endpoints left are ejected because they failed, the demand waits for them as for a slot.
///
/// See the [module](super) for an example.
#[derive(Debug)]
pub struct Endpoints {
    pub(crate) table: ArcSwap<RoutingTable>,
    /// The lock that serialises changes of the table.
    pub(super) changing: Mutex<()>,
    /// The lock that serialises ejections. Decisions do not take it.
    pub(super) ejecting: Mutex<()>,
    pub(super) leased: AtomicU64,
    /// `true` if a new endpoint with a check gets one request at a time until it has answered one or passed a check.
    pub(super) answers_first: bool,
    /// `true` if endpoints have only the slots that are leased to them.
    pub(super) leases_slots: AtomicBool,
    /// `true` after a probe ended without a result, until the router has looked for a waiter that can be the next
    /// probe.
    pub(super) probe_abandoned: AtomicBool,
    /// The link from the endpoints to the gate in front of them.
    pub(crate) gate_notice: GateNotice,
    pub(super) launchers: Launchers,
}

impl Endpoints {
    /// Makes a capacity of the endpoints of `registry`, all healthy and idle, with the default [`RoutingRules`].
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self::routed(registry, RoutingRules::default(), false)
    }

    /// Returns the demand of a request with these `requirements`. The name is copied only if it is not configured.
    #[must_use]
    pub fn demand(&self, requirements: &Requirements<'_>) -> Demand {
        self.table.load().demand(requirements)
    }

    /// Returns every endpoint with its live numbers, in the order of the registry.
    #[must_use]
    pub fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.table.load().endpoints.clone()
    }

    /// Returns the current registry.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.table.load().registry.clone()
    }

    /// Returns the current configuration.
    pub(crate) fn routing(&self) -> Arc<RoutingConfig> {
        self.table.load().rules.config.clone()
    }

    /// Returns `true` if `name` is a model or an alias, or has fallbacks.
    #[must_use]
    pub fn is_configured(&self, name: &str) -> bool {
        self.table.load().is_configured(name)
    }

    /// Ejects `endpoint`, or returns `None` if it has to stay because it is the last one or too many are ejected.
    pub(crate) fn eject(&self, endpoint: &EndpointRef) -> Option<HealthChange> {
        // Ejections run one at a time. If two endpoints fail at the same instant, the second ejection has to see the
        // first.
        let _alone = self.ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        let may = self.table.load().may_eject(endpoint);
        may.then(|| endpoint.state().word.eject())
    }

    /// Ends the ejection of `endpoint`, so that the next request may probe it. Returns `false` if it was not ejected.
    pub(crate) fn half_open(&self, endpoint: &EndpointRef) -> bool {
        let changed = endpoint.state().word.half_open();
        if changed {
            self.table.load().expect_half_open(endpoint);
        }
        changed
    }

    /// Returns the endpoint of a slot that was taken just now, as the latest table has it. An endpoint on demand may run
    /// at another URL than in the table by which its slot was taken.
    #[inline]
    pub(super) fn chosen(&self, endpoint: &EndpointRef) -> EndpointRef {
        match endpoint.is_on_demand() {
            true => self.latest(endpoint),
            false => endpoint.clone(),
        }
    }

    #[cold]
    fn latest(&self, endpoint: &EndpointRef) -> EndpointRef {
        let table = self.table.load();
        let present = table.endpoint(endpoint.pool());
        let present = present.filter(|present| **present == *endpoint);
        present.unwrap_or(endpoint).clone()
    }

    /// Gives back a slot of an endpoint on demand. It may be stopped once it is idle, so the launcher has to know if it waits for
    /// that.
    #[cold]
    fn release_on_demand(&self, lease: &EndpointLease) {
        let endpoint = lease.endpoint();
        if !lease.is_end_noted {
            endpoint.note_end_now();
        }
        if endpoint.state().word.release() == 0
            && let Some(on_demand) = endpoint.on_demand()
        {
            on_demand.on_idle();
        }
    }

    /// Returns `true` if any endpoint has a slot for one more request now, whatever the request asks for.
    pub(crate) fn has_free_slot(&self) -> bool {
        let table = self.table.load();
        let mut words = table.endpoints.iter().map(|it| it.state().word.load());
        words.any(|word| word.is_free() && word.flags().may_get_requests())
    }

    /// Returns `true` if a probe ended without a result since the last call, and forgets it.
    pub(crate) fn take_abandoned_probe(&self) -> bool {
        // The load comes first because this runs after each request, and a swap would write the cache line.
        self.probe_abandoned.load(Relaxed) && self.probe_abandoned.swap(false, SeqCst)
    }
}

impl Capacity for Endpoints {
    type Demand = Demand;
    type Lease = EndpointLease;
    type Lane = Lane;
    type Unservable = RouteError;

    fn try_lease(&self, demand: &Demand) -> Result<EndpointLease, LeaseError<RouteError>> {
        self.try_lease_keeping(demand, KeptSlots::NONE)
    }

    fn try_lease_keeping(
        &self,
        demand: &Demand,
        kept: KeptSlots,
    ) -> Result<EndpointLease, LeaseError<RouteError>> {
        let table = self.table.load();
        let (target, choice) = table.take(demand, kept, self.leases_slots.load(SeqCst))?;
        let candidate = choice.candidate;
        self.leased.fetch_add(1, Relaxed); // a counter for reports
        Ok(EndpointLease {
            probe: candidate.is_probe().then(|| candidate.seen.next_probe()),
            called: None,
            in_flight: candidate.in_flight() + 1,
            activity: 0,
            tokens: TokenBounds::default(),
            is_end_noted: false,
            decision: Decision {
                endpoint: self.chosen(candidate.endpoint()),
                model: target.model.clone(),
                asked: demand.asked.name.clone(),
                via: target.via,
                strategy: table.strategy_name,
                score: choice.score,
                retries: demand.asked.failures(),
                nth_model: candidate.backend.nth_model,
            },
        })
    }

    fn release(&self, lease: EndpointLease) -> PoolId {
        let state = lease.endpoint().state();
        if lease.probe.is_some_and(|it| state.word.return_probe(it)) {
            self.probe_abandoned.store(true, SeqCst);
        }
        // The probe is returned before the slot, because the request that takes the slot may be the next probe.
        match state.is_on_demand {
            true => self.release_on_demand(&lease),
            false => _ = state.word.release(),
        }
        state.pool
    }

    fn pool(&self, lease: &EndpointLease) -> PoolId {
        lease.endpoint().pool()
    }

    fn lane(&self, demand: &Demand) -> Lane {
        self.table.load().lane(&demand.asked)
    }

    fn pools(&self, lane: &Lane) -> PoolSet {
        self.table.load().pools_in_order(lane).into_iter().collect()
    }

    fn partition(&self, lane: &Lane) -> Partition {
        self.table.load().partition(lane)
    }

    fn pool_usage(&self, pool: PoolId) -> SlotUsage {
        let table = self.table.load();
        let Some(endpoint) = table.endpoint(pool) else {
            return SlotUsage::default();
        };
        let word = endpoint.state().word.load();
        SlotUsage {
            slots: word.slots() as usize,
            in_use: word.in_use() as usize,
        }
    }

    /// Returns the pools of the endpoints that are in service.
    fn all_pools(&self) -> Option<PoolSet> {
        let table = self.table.load();
        let endpoints = table.endpoints.iter();
        let in_service = endpoints.filter(|it| it.state().word.flags().is_in_service());
        Some(in_service.map(EndpointRef::pool).collect())
    }

    fn usage(&self) -> SlotUsage {
        let table = self.table.load();
        let slots = table.endpoints.iter().map(EndpointRef::limit);
        let with_leaving = table.endpoints.iter().chain(&table.leaving);
        let in_use = with_leaving.map(EndpointRef::in_flight);
        SlotUsage {
            slots: slots.map(|slots| slots as usize).sum(),
            in_use: in_use.map(|in_use| in_use as usize).sum(),
        }
    }

    fn leased(&self) -> u64 {
        self.leased.load(Relaxed)
    }

    fn on_demand(&self) -> Option<&dyn OnDemandCapacity<EndpointLease>> {
        self.launchers.is_on().then_some(self)
    }
}

impl OnDemandCapacity<EndpointLease> for Endpoints {
    fn slot_state(&self, pool: PoolId) -> SlotState {
        let table = self.table.load();
        let endpoint = table.endpoint(pool).filter(|it| it.is_stopped());
        let on_demand = endpoint.and_then(EndpointRef::on_demand);
        on_demand.map_or(SlotState::Ready, OnDemand::slot_state)
    }

    fn on_lane_heads_changed(&self) {
        self.launchers.notify();
    }

    fn on_overtake(&self, lease: &EndpointLease, level: Priority) {
        if let Some(on_demand) = lease.endpoint().on_demand() {
            on_demand.on_overtake(level);
        }
    }
}

/// A request's demand for a slot, which [`Endpoints::demand`] makes.
#[derive(Debug, Clone)]
pub struct Demand {
    /// The demand with its exact number of tokens. Its lane also depends on the contexts of the current endpoints.
    pub(crate) asked: Lane,
    /// The index of the name's resolution in the table that made the demand. A later table may have it elsewhere.
    pub(super) resolution: Option<usize>,
    pub(super) prefix: Option<u64>,
}

impl Demand {
    /// Returns the name that the request asks for.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.asked.name
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.asked.name.clone()
    }

    /// Returns the demand of the next attempt, which leaves out `endpoint` because an attempt failed there.
    pub(crate) fn retry(mut self, endpoint: &EndpointRef) -> Self {
        let before = self.asked.failed_at.as_deref().unwrap_or_default();
        let last = endpoint.state().cold.id;
        let others = before.iter().copied().filter(|&id| id != last);
        self.asked.failed_at = Some(others.chain([last]).collect());
        self
    }

    /// Returns the demand that takes `endpoints` for busy, because they refused the request a moment ago.
    pub(crate) fn refused_by<'a>(
        mut self,
        endpoints: impl IntoIterator<Item = &'a EndpointRef>,
    ) -> Self {
        let ids = endpoints.into_iter().map(|it| it.state().cold.id);
        self.asked.refused_by = Some(ids.collect());
        self
    }
}

/// A slot of an endpoint, which has to be given back with [`Capacity::release`].
#[derive(Debug)]
#[must_use = "a lease that is not released counts forever"]
pub struct EndpointLease {
    pub(crate) decision: Decision,
    /// The probe that the request is, until it has a result.
    pub(crate) probe: Option<ProbeId>,
    /// The time at which the inner service was called.
    pub(crate) called: Option<Instant>,
    /// The number of requests that the endpoint served once it had this one, too.
    pub(crate) in_flight: u32,
    /// The activity of the endpoint at the time at which the inner service was called.
    pub(crate) activity: u32,
    /// Bounds on the tokens that the request may cost.
    pub(crate) tokens: TokenBounds,
    /// `true` if the body of the response records the time of its end, so that `release` keeps that time.
    pub(crate) is_end_noted: bool,
}

impl EndpointLease {
    /// Returns the decision, which has the endpoint and the reasons for its choice.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the endpoint that the slot belongs to.
    #[must_use]
    pub fn endpoint(&self) -> &EndpointRef {
        &self.decision.endpoint
    }

    /// Returns the name of the model that serves the request.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.decision.model
    }
}
