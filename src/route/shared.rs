//! What all services of one `RouteLayer` share, and what it learns from each response.

use std::collections::BTreeMap;
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
    /// Of retries. An attempt that may be retried adds a share of one.
    pub(super) budget: ArcSwap<TpsBudget>,
    /// How many requests were rejected, by code.
    pub(super) rejected: Mutex<BTreeMap<&'static str, u64>>,
}

/// How long a request counts as recent traffic.
const RECENT: Duration = Duration::from_secs(10);

/// How many retries a second are allowed however little traffic there is.
const MIN_RETRIES: u32 = 10;

fn budget(share: f64) -> Arc<TpsBudget> {
    Arc::new(TpsBudget::new(RECENT, MIN_RETRIES, share as f32))
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
            budget: ArcSwap::new(budget(builder.routing.retry_share)),
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
            // A new budget has all of its reserve, so an unchanged share keeps the old one.
            if let Some(rules) = &rules
                && rules.config.retry_share != endpoints.routing().retry_share
            {
                self.budget.store(budget(rules.config.retry_share));
            }
            Ok((registry, rules))
        })?;
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
        #[cfg(feature = "swap")]
        if class.is_no_answer() {
            self.endpoints().on_no_answer(endpoint); // before the slot comes back
        }
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
        let end = EjectionEnd {
            shared: Arc::downgrade(self), // the task does not keep the router alive
            endpoint: endpoint.clone(),
        };
        runtime.spawn(async move {
            tokio::time::sleep(ejection_duration).await;
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
}

impl Drop for EjectionEnd {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.endpoints().half_open(&self.endpoint);
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
