//! Many endpoints as one capacity, with a pool of slots for each.
//!
//! A decision reads a [`RoutingTable`] that no writer blocks, and takes the slot that it saw when it chose, or chooses
//! again. Nothing is allocated on the way.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwap;

use super::config::RoutingConfig;
use super::endpoint_word::{HealthChange, ProbeId};
#[cfg(feature = "swap")]
use super::on_demand::OnDemand;
use super::requirements::TokenBounds;
use super::table::RoutingTable;
use super::{Decision, EndpointRef, Lane, Registry, Requirements, RouteError, RoutingRules};
use crate::admit::{Capacity, KeptSlots, LeaseError, Partition, PoolId, PoolSet, SlotUsage};
#[cfg(feature = "swap")]
use crate::admit::{OnDemandCapacity, Priority, SlotState};

/// Many endpoints as one capacity, with a pool of slots for each.
///
/// A request's model is tried first, then the model that its name is an alias of, then the fallbacks, in order. Among the
/// endpoints that are healthy, can do what is asked and have a slot free, the strategy chooses.
///
/// A demand that no endpoint can serve, or no healthy one, is unservable: it never waits. While the only endpoints left
/// are ejected because they failed, it waits for them as for a slot. Demands share a lane if they ask for the same name
/// with the same capabilities, and if the same endpoints have a context for their tokens.
///
/// See the [module](super) for an example.
#[derive(Debug)]
pub struct Endpoints {
    pub(crate) table: ArcSwap<RoutingTable>,
    /// Held while the table is replaced.
    pub(super) changing: Mutex<()>,
    /// Held while an endpoint is ejected. No decision waits for it.
    pub(super) ejecting: Mutex<()>,
    pub(super) leased: AtomicU64,
    /// Whether a new endpoint gets one request at a time until it has answered one or passed a check.
    pub(super) answers_first: bool,
    /// `true` if endpoints have no slots but those that they are leased.
    pub(super) leases_slots: AtomicBool,
    /// A probe ended without a result, and waiters may wait for the next.
    pub(super) probe_abandoned: AtomicBool,
    #[cfg(feature = "swap")]
    pub(super) demand_notifier: super::on_demand::DemandNotifier,
}

impl Endpoints {
    /// The endpoints of `registry`, all healthy and idle, by the default [`RoutingRules`].
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self::routed(registry, RoutingRules::default(), false)
    }

    /// The demand of a request that has these `requirements`.
    ///
    /// Copies the name only if it is not configured.
    #[must_use]
    pub fn demand(&self, requirements: &Requirements<'_>) -> Demand {
        self.table.load().demand(requirements)
    }

    /// Every endpoint with its live numbers, in the registry's order.
    #[must_use]
    pub fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.table.load().endpoints.clone()
    }

    /// The present registry.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.table.load().registry.clone()
    }

    /// The present configuration.
    pub(crate) fn routing(&self) -> Arc<RoutingConfig> {
        self.table.load().rules.config.clone()
    }

    /// Whether `name` is a model, an alias, or has fallbacks.
    #[must_use]
    pub fn is_configured(&self, name: &str) -> bool {
        self.table.load().is_configured(name)
    }

    /// Returns `true` if a slot that was taken before may serve `demand`.
    pub(crate) fn fits(&self, demand: &Demand, taken: &EndpointLease) -> bool {
        self.table.load().fits(&demand.asked, taken)
    }

    /// Whether an endpoint could serve `demand`, now or when it has a slot free.
    pub(crate) fn could_serve(&self, demand: &Demand) -> bool {
        !self.table.load().pools(&demand.asked).is_empty()
    }

    /// Returns the models that were tried for `demand`, if no endpoint of a fallback chain could serve it.
    pub(crate) fn exhausted_chain(&self, demand: &Demand) -> Option<RouteError> {
        self.table.load().exhausted_chain(&demand.asked)
    }

    /// Ejects `endpoint`. `None` if it has to stay, because too many are ejected already or no other would be left.
    pub(crate) fn eject(&self, endpoint: &EndpointRef) -> Option<HealthChange> {
        // One at a time: of two that fail at the same instant, the second has to see that the first is ejected.
        let _alone = self.ejecting.lock().unwrap_or_else(PoisonError::into_inner);
        let may = self.table.load().may_eject(endpoint);
        may.then(|| endpoint.state().word.eject())
    }

    /// Ends the ejection of `endpoint`: the next request may probe it. Returns `false` if it was not ejected.
    pub(crate) fn half_open(&self, endpoint: &EndpointRef) -> bool {
        let changed = endpoint.state().word.half_open();
        if changed {
            self.table.load().expect_half_open(endpoint);
        }
        changed
    }

    /// The endpoint of which a slot was taken, by `table`.
    #[inline]
    #[cfg_attr(
        not(feature = "swap"),
        expect(unused_variables, reason = "an endpoint stays where it is")
    )]
    pub(super) fn chosen(&self, endpoint: &EndpointRef, table: &RoutingTable) -> EndpointRef {
        // After the slot was taken. Nearly always the table is still the present one.
        #[cfg(feature = "swap")]
        if self.demand_notifier.version() != table.version {
            return self.present(endpoint);
        }
        endpoint.clone()
    }

    /// Whether a probe ended without a result since this was last called.
    pub(crate) fn take_abandoned_probe(&self) -> bool {
        // A load first: this runs after each request, and a swap writes.
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
            tokens: TokenBounds::default(),
            #[cfg(feature = "swap")]
            is_end_noted: false,
            decision: Decision {
                endpoint: self.chosen(candidate.endpoint(), &table),
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

    #[cfg_attr(
        not(feature = "swap"),
        expect(unused_variables, reason = "idle endpoints are not stopped")
    )]
    fn release(&self, lease: EndpointLease) -> PoolId {
        let state = lease.endpoint().state();
        if lease.probe.is_some_and(|it| state.word.return_probe(it)) {
            self.probe_abandoned.store(true, SeqCst);
        }
        #[cfg(feature = "swap")]
        if !lease.is_end_noted {
            lease.endpoint().note_end_now();
        }
        // After `return_probe`: the request that takes the slot may be the next probe.
        let in_use = state.word.release();
        #[cfg(feature = "swap")]
        if in_use == 0
            && let Some(on_demand) = lease.endpoint().on_demand()
        {
            self.demand_notifier.on_idle(on_demand);
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
        self.table.load().pools(lane)
    }

    fn partition(&self, lane: &Lane) -> Partition {
        self.table.load().partition(lane)
    }

    fn pool_usage(&self, pool: PoolId) -> SlotUsage {
        let table = self.table.load();
        let endpoint = table.endpoint(pool);
        let usage = |endpoint: &EndpointRef| {
            let word = endpoint.state().word.load();
            SlotUsage {
                slots: word.slots() as usize,
                in_use: word.in_use() as usize,
            }
        };
        endpoint.map_or_else(SlotUsage::default, usage)
    }

    /// Those of the endpoints that are in service.
    fn all_pools(&self) -> Option<PoolSet> {
        let table = self.table.load();
        let endpoints = table.endpoints.iter();
        let in_service = endpoints.filter(|it| it.state().word.is_in_service());
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

    #[cfg(feature = "swap")]
    fn on_demand(&self) -> Option<&dyn OnDemandCapacity<EndpointLease>> {
        self.demand_notifier.is_on().then_some(self)
    }
}

#[cfg(feature = "swap")]
impl OnDemandCapacity<EndpointLease> for Endpoints {
    fn slot_state(&self, pool: PoolId) -> SlotState {
        let table = self.table.load();
        let endpoint = table.endpoint(pool).filter(|it| it.is_stopped());
        let on_demand = endpoint.and_then(EndpointRef::on_demand);
        on_demand.map_or(SlotState::Ready, OnDemand::slot_state)
    }

    fn on_lane_heads_changed(&self) {
        self.demand_notifier.on_lane_heads_changed();
    }

    fn on_overtake(&self, lease: &EndpointLease, level: Priority) {
        if let Some(on_demand) = lease.endpoint().on_demand() {
            self.demand_notifier.on_overtake(on_demand, level);
        }
    }
}

/// What a request asks of [`Endpoints`]. Made by [`Endpoints::demand`].
#[derive(Debug, Clone)]
pub struct Demand {
    /// What it asks, to the token. Its lane depends on the contexts of the endpoints that there are.
    pub(super) asked: Lane,
    /// The index of its name's resolution, in the table of the time.
    pub(super) resolution: Option<usize>,
    pub(super) prefix: Option<u64>,
}

impl Demand {
    /// The name that is asked for.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.asked.name
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.asked.name.clone()
    }

    /// The demand of the next attempt, after one failed at `endpoint`: for another endpoint.
    pub(crate) fn retry(mut self, endpoint: &EndpointRef) -> Self {
        self.asked = self.asked.excluding(endpoint);
        self
    }
}

/// One slot of one endpoint. It is given back with [`Capacity::release`].
#[derive(Debug)]
#[must_use = "a lease that is not released counts forever"]
pub struct EndpointLease {
    pub(crate) decision: Decision,
    /// The probe of the endpoint that its request is, without a result yet.
    pub(crate) probe: Option<ProbeId>,
    /// When the inner service was called.
    pub(crate) called: Option<Instant>,
    /// How many requests the endpoint served once it had this one.
    pub(crate) in_flight: u32,
    /// The tokens that the request may cost.
    pub(crate) tokens: TokenBounds,
    /// Whether the body of its response notes when that ends, before the lease is given back.
    #[cfg(feature = "swap")]
    pub(crate) is_end_noted: bool,
}

impl EndpointLease {
    /// What was decided, and why.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The endpoint of the slot.
    #[must_use]
    pub fn endpoint(&self) -> &EndpointRef {
        &self.decision.endpoint
    }

    /// The model that serves the request.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.decision.model
    }
}
