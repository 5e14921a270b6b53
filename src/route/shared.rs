//! What all services of one `RouteLayer` share, and what it learns from each response.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed; // only compared with an earlier count
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tower::retry::budget::TpsBudget;

use super::extract::DemandSource;
use super::metrics::Metrics;
use super::response_class::ResponseClass;
use super::{InvalidRoute, RouteLayerBuilder, RoutingConfig};
use crate::clock;
use crate::endpoints::HealthChange;
use crate::endpoints::latency::CoarseInstant;
use crate::endpoints::{Changes, EndpointRef, Endpoints, Registry, RoutingRules};
#[cfg(feature = "client")]
use crate::endpoints::{EngineLoad, HealthSink};
use crate::gate::{self, Gate, Permit};
use crate::service::LayerState;

/// What all services of one `RouteLayer` share.
#[derive(Debug)]
pub(super) struct RouterShared {
    pub(super) state: Arc<LayerState<Endpoints>>,
    pub(super) body_limit: usize,
    pub(super) demand_from: DemandSource,
    pub(super) endpoint_header: bool,
    pub(super) model_header: bool,
    /// `true` if requests say how long they waited.
    pub(super) tells_queue_time: bool,
    pub(super) metrics: Metrics,
    /// Marked as changed after each change of the endpoints.
    pub(super) changed: watch::Sender<()>,
    pub(super) budgets: ArcSwap<RetryBudgets>,
    /// How many requests were rejected, by code.
    pub(super) rejected: Mutex<BTreeMap<&'static str, u64>>,
}

/// How long a request counts as recent traffic.
const RECENT: Duration = Duration::from_secs(10);

/// How many retries a second are allowed however little traffic there is.
const MIN_RETRIES: u32 = 10;

/// The budgets of retries, one for each model, so that a model that fails takes no retry from another one. An attempt
/// that may be retried adds a share of one to the budget of its model.
#[derive(Debug)]
pub(super) struct RetryBudgets {
    share: f64,
    /// The budgets of the models that have had a request. It has no more names than the configuration had models.
    by_model: ArcSwap<HashMap<Arc<str>, Arc<TpsBudget>>>,
}

impl RetryBudgets {
    fn new(share: f64) -> Arc<Self> {
        let by_model = ArcSwap::default();
        Arc::new(Self { share, by_model })
    }

    /// Returns the budget of `model`.
    pub(super) fn of(&self, model: &Arc<str>) -> Arc<TpsBudget> {
        if let Some(budget) = self.by_model.load().get(model) {
            return Arc::clone(budget);
        }
        let share = self.share as f32;
        let new = Arc::new(TpsBudget::new(RECENT, MIN_RETRIES, share));
        self.by_model.rcu(|budgets| {
            let mut budgets = HashMap::clone(budgets);
            let budget = budgets.entry(Arc::clone(model));
            budget.or_insert_with(|| Arc::clone(&new));
            budgets
        });
        // Another request may have added it first.
        let budgets = self.by_model.load();
        budgets.get(model).map_or(new, Arc::clone)
    }

    /// Drops the budgets of models that are gone.
    fn retain(&self, is_present: impl Fn(&str) -> bool) {
        if self.by_model.load().keys().all(|model| is_present(model)) {
            return;
        }
        self.by_model.rcu(|budgets| {
            let mut budgets = HashMap::clone(budgets);
            budgets.retain(|model, _| is_present(model));
            budgets
        });
    }
}

impl RouterShared {
    pub(super) fn new(builder: RouteLayerBuilder) -> Result<Self, InvalidRoute> {
        let endpoints = Endpoints::routed(builder.registry, builder.routing.rules()?, true);
        Ok(Self {
            state: LayerState::new(builder.queue, |room| Gate::new(endpoints, room))?,
            body_limit: builder.body_limit,
            demand_from: builder.demand_from,
            endpoint_header: builder.endpoint_header,
            model_header: builder.model_header,
            tells_queue_time: builder.tells_queue_time,
            metrics: Metrics::default(),
            changed: watch::Sender::default(),
            budgets: ArcSwap::new(RetryBudgets::new(builder.routing.retry_share)),
            rejected: Mutex::default(),
        })
    }

    /// Changes the endpoints, and the routing if there are new rules. Those that are started on demand stay.
    ///
    /// # Errors
    ///
    /// Those of `change`, which is given the present registry. Nothing has changed then.
    pub(super) fn change<E>(
        &self,
        change: impl FnOnce(&Registry) -> Result<(Registry, Option<RoutingRules>), E>,
    ) -> Result<Changes, E> {
        self.change_all(|registry| {
            let (on_demand, own) = registry.split_on_demand();
            let (registry, rules) = change(&own)?;
            Ok((registry.with_on_demand(on_demand), rules))
        })
    }

    /// The same, with those that are started on demand.
    ///
    /// # Errors
    ///
    /// Those of `change`.
    pub(super) fn change_all<E>(
        &self,
        change: impl FnOnce(&Registry) -> Result<(Registry, Option<RoutingRules>), E>,
    ) -> Result<Changes, E> {
        let endpoints = self.endpoints();
        let changes = endpoints.change(|registry| {
            let (registry, rules) = change(registry)?;
            // New budgets have all of their reserve, so an unchanged share keeps the old ones.
            if let Some(rules) = &rules
                && rules.config.retry_share != endpoints.routing().retry_share
            {
                self.budgets
                    .store(RetryBudgets::new(rules.config.retry_share));
            }
            Ok((registry, rules))
        })?;
        let table = endpoints.table.load();
        let budgets = self.budgets.load();
        budgets.retain(|model| table.is_configured(model));
        self.state.gate.capacity_changed();
        self.changed.send_replace(());
        Ok(changes)
    }

    pub(super) fn endpoints(&self) -> &Endpoints {
        self.state.gate.capacity()
    }

    /// Updates the health of an endpoint by its response. If the request `has_failed` elsewhere, a failure does not count:
    /// the request may be at fault.
    #[inline]
    pub(super) fn learn(
        self: &Arc<Self>,
        permit: &mut Permit<Endpoints>,
        class: ResponseClass,
        has_failed: bool,
    ) {
        let lease = permit.lease_mut();
        let endpoint = &lease.decision.endpoint;
        let state = endpoint.state();
        if let ResponseClass::Success | ResponseClass::Failure { answered: true, .. } = class {
            state.cold.activity.fetch_add(1, Relaxed);
            if let Some(change) = state.word.answered() {
                self.health_changed(endpoint, change);
            }
        }
        match class {
            // Not a result for a probe: the next request probes.
            ResponseClass::Unknown { .. } => {}
            ResponseClass::Failure { .. } if has_failed => {}
            ResponseClass::Failure { .. } => {
                let routing = self.endpoints().routing();
                let probe = lease.probe.take();
                let is_probe = probe.is_some_and(|it| state.word.is_probed_by(it));
                if state.ejection.failed(routing.eject_after) || is_probe {
                    self.eject(endpoint, &routing);
                }
            }
            ResponseClass::Success => {
                if let Some(called) = lease.called {
                    let now = gate::now();
                    let took = now.saturating_duration_since(called);
                    state.latency.answered(took, CoarseInstant::at(now));
                }
                let probe = lease.probe.take();
                if !probe.is_some_and(|it| state.word.is_probed_by(it)) {
                    return state.ejection.succeeded(); // nearly always
                }
                state.ejection.closed();
                self.health_changed(endpoint, state.word.close());
            }
        }
    }

    /// The response body of an endpoint broke off.
    pub(super) fn body_reset(self: &Arc<Self>, endpoint: &EndpointRef) {
        let routing = self.endpoints().routing();
        if endpoint.state().ejection.body_reset(routing.eject_after) {
            self.eject(endpoint, &routing);
        }
    }

    /// Keeps new requests off an endpoint that answered 429 for as long as it says, for 60 s at most. The last endpoint
    /// that could serve stays in service.
    pub(super) fn keep_off(self: &Arc<Self>, endpoint: &EndpointRef, retry_after: Duration) {
        let has_clock = clock::sleep_until(clock::now()).is_some();
        let Some(runtime) = Handle::try_current().ok().filter(|_| has_clock) else {
            return; // it would never end
        };
        let Some(change) = self.endpoints().eject(endpoint).filter(|it| it.is_new()) else {
            return;
        };
        let duration = endpoint.state().ejection.requested_duration(retry_after);
        let name = endpoint.name();
        tracing::info!(endpoint = name, ?duration, "endpoint asked for no requests");
        self.health_changed(endpoint, change);
        self.end_ejection(&runtime, endpoint, duration);
    }

    fn eject(self: &Arc<Self>, endpoint: &EndpointRef, routing: &RoutingConfig) {
        let state = endpoint.state();
        // Without Tokio's clock, the ejection would never end.
        let has_clock = clock::sleep_until(clock::now()).is_some();
        let Some(runtime) = Handle::try_current().ok().filter(|_| has_clock) else {
            return self.health_changed(endpoint, state.word.close());
        };
        let Some(change) = self.endpoints().eject(endpoint) else {
            // The last one, or too many are out: it stays in service, and its failures count from 0 again.
            state.ejection.reset_failures();
            return self.health_changed(endpoint, state.word.close());
        };
        if !change.is_new() {
            return; // another request has ejected it at the same time
        }
        let ejection_duration = state.ejection.ejection_duration(routing.eject_for);
        tracing::warn!(
            endpoint = endpoint.name(),
            ?ejection_duration,
            "endpoint failed too often and is left alone for a while"
        );
        self.health_changed(endpoint, change);
        self.end_ejection(&runtime, endpoint, ejection_duration);
    }

    /// Ends an ejection after `duration`.
    fn end_ejection(
        self: &Arc<Self>,
        runtime: &Handle,
        endpoint: &EndpointRef,
        duration: Duration,
    ) {
        let end = EjectionEnd {
            shared: Arc::downgrade(self), // the task does not keep the router alive
            endpoint: endpoint.clone(),
            number: endpoint.state().ejection.number(),
        };
        runtime.spawn(async move {
            tokio::time::sleep(duration).await;
            drop(end);
        });
    }

    /// Logs and counts a change in the health of `endpoint`, if it is one, and notifies the waiters.
    pub(super) fn health_changed(&self, endpoint: &EndpointRef, change: HealthChange) {
        if !change.is_new() {
            return;
        }
        if let Some(healthy) = change.health() {
            let name = endpoint.name();
            if healthy {
                tracing::info!(endpoint = name, healthy, "endpoint is back in service");
            } else {
                tracing::warn!(endpoint = name, healthy, "endpoint is out of service");
            }
            self.metrics.health_changed(endpoint);
        }
        self.state.gate.capacity_changed();
    }

    /// If a probe ended without a result, a waiter may be the next one.
    pub(super) fn pass_probe_on(&self) {
        if self.endpoints().take_abandoned_probe() {
            self.state.gate.capacity_changed();
        }
    }
}

/// Ends an ejection when it is dropped: after its time, or with the runtime that would have measured that.
struct EjectionEnd {
    shared: Weak<RouterShared>,
    endpoint: EndpointRef,
    /// The number of the ejection. A check may have ended it early, and a probe may have begun the next one.
    number: u32,
}

impl Drop for EjectionEnd {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade()
            && self.endpoint.state().ejection.number() == self.number
            && shared.endpoints().half_open(&self.endpoint)
        {
            shared.state.gate.capacity_changed();
        }
    }
}

/// Health checks act on a router as its handle does.
#[cfg(feature = "client")]
impl HealthSink for RouterShared {
    fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.endpoints().endpoints()
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn set_healthy(&self, endpoint: &EndpointRef, healthy: bool) {
        self.health_changed(endpoint, endpoint.state().word.set_up(healthy));
    }

    /// Lets a request probe the endpoint before its ejection is over.
    fn check_passed(&self, endpoint: &EndpointRef) {
        if self.endpoints().half_open(endpoint) {
            self.state.gate.capacity_changed();
        }
    }

    fn forget_checks(&self, endpoint: &EndpointRef) {
        let change = endpoint.state().word.forget_checks();
        let endpoints = self.endpoints().endpoints();
        if endpoints.iter().any(|present| present.is_same(endpoint)) {
            self.health_changed(endpoint, change);
        } else if change.is_new() {
            // It has left: its health is not logged any more, but waiters may wait for it.
            self.state.gate.capacity_changed();
        }
    }

    fn engine_said(&self, endpoint: &EndpointRef, load: Option<EngineLoad>) {
        if endpoint.engine_said(load, gate::now()) {
            self.state.gate.capacity_changed();
        }
    }
}
