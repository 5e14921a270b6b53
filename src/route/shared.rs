//! The state that all services of one `RouteLayer` share, and its updates from each response.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed; // the counter is only compared with an earlier count
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

/// The state that all services of one `RouteLayer` share.
#[derive(Debug)]
pub(super) struct RouterShared {
    pub(super) state: Arc<LayerState<Endpoints>>,
    pub(super) body_limit: usize,
    pub(super) demand_from: DemandSource,
    pub(super) endpoint_header: bool,
    pub(super) model_header: bool,
    /// `true` if the inner service is told the wait of each request.
    pub(super) tells_queue_time: bool,
    pub(super) metrics: Metrics,
    /// A channel that is marked as changed after each change of the endpoints.
    pub(super) changed: watch::Sender<()>,
    pub(super) budgets: ArcSwap<RetryBudgets>,
    /// The number of rejected requests for each error code.
    pub(super) rejected: Mutex<BTreeMap<&'static str, u64>>,
}

/// The time for which a request counts as recent traffic.
const RECENT: Duration = Duration::from_secs(10);

/// The number of retries per second that are allowed even with little traffic.
const MIN_RETRIES: u32 = 10;

/// The retry budgets of all models. Each model has its own, so a failing model does not use up the retries of another
/// one. The first attempt of each request that may be retried adds a fraction of a retry to the budget of its model.
#[derive(Debug)]
pub(super) struct RetryBudgets {
    share: f64,
    /// The budgets of the models that have had a request. Only names that the configuration had are in the map, which
    /// bounds its size.
    by_model: ArcSwap<HashMap<Arc<str>, Arc<TpsBudget>>>,
}

impl RetryBudgets {
    fn new(share: f64) -> Arc<Self> {
        let by_model = ArcSwap::default();
        Arc::new(Self { share, by_model })
    }

    /// Returns the budget of `model`, which is created at first use.
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
        // Another request may have added a budget first, so the map decides which one is used.
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

    /// Changes the endpoints that the configuration names, and the routing if there are new rules. Endpoints that are
    /// started on demand stay.
    ///
    /// # Errors
    ///
    /// Returns the errors of `change`, which is given the current registry. The router is unchanged then.
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

    /// Changes all endpoints, including those that are started on demand, and the routing if there are new rules.
    ///
    /// # Errors
    ///
    /// Returns the errors of `change`. The router is unchanged then.
    pub(super) fn change_all<E>(
        &self,
        change: impl FnOnce(&Registry) -> Result<(Registry, Option<RoutingRules>), E>,
    ) -> Result<Changes, E> {
        let endpoints = self.endpoints();
        let changes = endpoints.change(|registry| {
            let (registry, rules) = change(registry)?;
            // New budgets start with their full reserve, so an unchanged share keeps the old budgets.
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

    /// Updates the health of the permit's endpoint after a response of the class `class`. If the request `has_failed`
    /// elsewhere, its failure does not count, because the request may be at fault.
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
            // An unknown result decides nothing about a probe, so the next request probes again.
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
                    return state.ejection.succeeded(); // nearly every request is not a probe
                }
                state.ejection.closed();
                self.health_changed(endpoint, state.word.close());
            }
        }
    }

    /// Counts a response body of the endpoint that broke off, and ejects the endpoint if there were too many.
    pub(super) fn body_reset(self: &Arc<Self>, endpoint: &EndpointRef) {
        let routing = self.endpoints().routing();
        if endpoint.state().ejection.body_reset(routing.eject_after) {
            self.eject(endpoint, &routing);
        }
    }

    /// Keeps new requests off an endpoint that answered 429, for as long as the response asks, but for 60 s at most.
    /// The last endpoint that could serve stays in service.
    pub(super) fn keep_off(self: &Arc<Self>, endpoint: &EndpointRef, retry_after: Duration) {
        let has_clock = clock::sleep_until(clock::now()).is_some();
        let Some(runtime) = Handle::try_current().ok().filter(|_| has_clock) else {
            return; // without a timer, the pause would last for ever
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
        // Without Tokio's clock, the ejection would last for ever.
        let has_clock = clock::sleep_until(clock::now()).is_some();
        let Some(runtime) = Handle::try_current().ok().filter(|_| has_clock) else {
            return self.health_changed(endpoint, state.word.close());
        };
        let Some(change) = self.endpoints().eject(endpoint) else {
            // The endpoint is the last one, or too many are ejected. It stays in service, and its failures count from 0
            // again.
            state.ejection.reset_failures();
            return self.health_changed(endpoint, state.word.close());
        };
        if !change.is_new() {
            return; // another request has ejected the endpoint at the same time
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

    /// Starts a task that ends the current ejection of `endpoint` after `duration`.
    fn end_ejection(
        self: &Arc<Self>,
        runtime: &Handle,
        endpoint: &EndpointRef,
        duration: Duration,
    ) {
        let end = EjectionEnd {
            shared: Arc::downgrade(self), // weak, so that the task does not keep the router alive
            endpoint: endpoint.clone(),
            number: endpoint.state().ejection.number(),
        };
        runtime.spawn(async move {
            tokio::time::sleep(duration).await;
            drop(end);
        });
    }

    /// Logs and counts a change in the health of `endpoint`, and notifies the waiters. A call without a change is
    /// ignored.
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

    /// Notifies the waiters if a probe ended without a result, because a waiter may be the next probe.
    pub(super) fn pass_probe_on(&self) {
        if self.endpoints().take_abandoned_probe() {
            self.state.gate.capacity_changed();
        }
    }
}

/// A guard that ends an ejection when it is dropped. This happens after the ejection's time, or at the end of the
/// runtime that would have measured it.
struct EjectionEnd {
    shared: Weak<RouterShared>,
    endpoint: EndpointRef,
    /// The number of the ejection. A check may have ended this ejection early, and a probe may have begun the next one.
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

/// Lets health checks act on a router in the same way as its handle does.
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
            // The endpoint has left the registry, so its health is not logged any more, but requests may still wait for
            // it.
            self.state.gate.capacity_changed();
        }
    }

    fn engine_said(&self, endpoint: &EndpointRef, load: Option<EngineLoad>) {
        if endpoint.engine_said(load, gate::now()) {
            self.state.gate.capacity_changed();
        }
    }
}
