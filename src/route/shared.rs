//! The state that all services of one `RouteLayer` share, and its updates from each response.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed; // counters that guard no other memory
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::builder::RouteOptions;
use super::metrics::Metrics;
use super::response_class::ResponseClass;
use super::{InvalidRoute, RouteLayerBuilder};
use crate::clock;
use crate::endpoints::HealthChange;
use crate::endpoints::latency::CoarseInstant;
use crate::endpoints::{Changes, EndpointRef, Endpoints, Registry, RoutingRules};
use crate::gate::{Gate, Permit};
use crate::openai::BodyMemory;
use crate::service::LayerState;

/// The state that all services of one `RouteLayer` share.
#[derive(Debug)]
pub(super) struct RouterShared {
    pub(super) state: Arc<LayerState<Endpoints>>,
    pub(super) options: RouteOptions,
    /// The memory of request bodies, if it is limited.
    pub(super) body_memory: Option<BodyMemory>,
    pub(super) metrics: Metrics,
    /// A channel that is marked as changed after each change of the endpoints.
    pub(super) changed: watch::Sender<()>,
    /// The number of rejected requests for each error code.
    pub(super) rejected: Mutex<BTreeMap<&'static str, u64>>,
}

impl RouterShared {
    pub(super) fn new(builder: RouteLayerBuilder) -> Result<Self, InvalidRoute> {
        let endpoints = Endpoints::routed(builder.registry, builder.routing.rules()?, true);
        let state = LayerState::new(builder.queue, |room| Gate::new(endpoints, room))?;
        let weak = Arc::downgrade(&state); // weak, because the gate owns the endpoints
        state.gate.capacity().gate_notice.connect(move || {
            if let Some(state) = weak.upgrade() {
                state.gate.capacity_changed();
            }
        });
        Ok(Self {
            state,
            body_memory: builder.options.body_memory.map(BodyMemory::new),
            options: builder.options,
            metrics: Metrics::default(),
            changed: watch::Sender::default(),
            rejected: Mutex::default(),
        })
    }

    /// Changes the endpoints that the configuration names, and the routing if there are new rules. Endpoints that are
    /// started on demand stay. If `change` fails, the router is unchanged.
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
    pub(super) fn change_all<E>(
        &self,
        change: impl FnOnce(&Registry) -> Result<(Registry, Option<RoutingRules>), E>,
    ) -> Result<Changes, E> {
        let changes = self.endpoints().change(change)?;
        self.state.gate.capacity_changed();
        self.changed.send_replace(());
        Ok(changes)
    }

    pub(super) fn endpoints(&self) -> &Endpoints {
        self.state.gate.capacity()
    }

    /// Updates the health of the permit's endpoint after a response of the class `class` at `now`. If the request `has_failed`
    /// elsewhere, its failure does not count, because the request may be at fault.
    #[inline]
    pub(super) fn learn(
        self: &Arc<Self>,
        permit: &mut Permit<Endpoints>,
        class: ResponseClass,
        has_failed: bool,
        now: Instant,
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
        if class.is_failure() {
            state.cold.failures.fetch_add(1, Relaxed);
        }
        // An unknown result decides nothing about a probe, so the next request probes again. Nor does a request that may be
        // at fault itself.
        let decides = match class {
            ResponseClass::Unknown { .. } => false,
            ResponseClass::Failure { .. } => !has_failed,
            ResponseClass::Success => true,
        };
        if !decides {
            return;
        }
        let probe = lease.probe.take();
        let is_probe = probe.is_some_and(|probe| state.word.load().is_probed_by(probe));
        if class.is_failure() {
            let routing = self.endpoints().routing();
            if state.ejection.failures.failed(routing.eject_after) {
                let count = routing.eject_after;
                self.eject(endpoint, || format!("{count} requests in a row failed"));
            } else if is_probe {
                self.eject(endpoint, || "the probe failed".to_owned());
            }
            return;
        }
        if let Some(called) = lease.called {
            let took = now.saturating_duration_since(called);
            state.latency.answered(took, CoarseInstant::at(now));
        }
        if is_probe {
            state.ejection.closed();
            self.health_changed(endpoint, state.word.close());
        } else {
            state.ejection.failures.end(); // nearly every request is not a probe
        }
    }

    /// Counts a response body of the endpoint that broke off, and ejects the endpoint if there were too many.
    pub(super) fn body_reset(self: &Arc<Self>, endpoint: &EndpointRef) {
        let routing = self.endpoints().routing();
        let state = endpoint.state();
        state.cold.failures.fetch_add(1, Relaxed);
        if state.ejection.resets.failed(routing.eject_after) {
            let count = routing.eject_after;
            self.eject(endpoint, || format!("{count} responses in a row broke off"));
        }
    }

    /// Keeps new requests off an endpoint that answered 429, for as long as the response asks, but for 60 s at most.
    /// The last endpoint that could serve stays in service.
    pub(super) fn keep_off(self: &Arc<Self>, endpoint: &EndpointRef, retry_after: Duration) {
        let Some(runtime) = timed_runtime() else {
            return; // without a timer, the pause would last for ever
        };
        let Some(change) = self.endpoints().eject(endpoint).filter(|it| it.is_new()) else {
            return;
        };
        let state = endpoint.state();
        let duration = state.ejection.requested_duration(retry_after);
        state
            .cold
            .health
            .set_reason("it answered 429 and asked for a pause");
        let name = endpoint.name();
        tracing::info!(endpoint = name, ?duration, "endpoint asked for no requests");
        self.health_changed(endpoint, change);
        self.end_ejection(&runtime, endpoint, duration);
    }

    /// Ejects an endpoint for a while on behalf of an operator. Returns `false` if it has to stay in service.
    pub(super) fn eject_by_operator(self: &Arc<Self>, endpoint: &EndpointRef) -> bool {
        let Some(runtime) = timed_runtime() else {
            return false;
        };
        let Some(change) = self.endpoints().eject(endpoint) else {
            return false;
        };
        if change.is_new() {
            let ejection_duration = self.ejection_duration(endpoint);
            tracing::warn!(
                endpoint = endpoint.name(),
                ?ejection_duration,
                "an operator ejects the endpoint for a while"
            );
            let health = &endpoint.state().cold.health;
            health.set_reason("an operator ejected it");
            self.health_changed(endpoint, change);
            self.end_ejection(&runtime, endpoint, ejection_duration);
        }
        true
    }

    fn eject(self: &Arc<Self>, endpoint: &EndpointRef, reason: impl FnOnce() -> String) {
        let state = endpoint.state();
        let Some(runtime) = timed_runtime() else {
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
        let ejection_duration = self.ejection_duration(endpoint);
        tracing::warn!(
            endpoint = endpoint.name(),
            ?ejection_duration,
            "endpoint failed too often and is left alone for a while"
        );
        state.cold.health.set_reason(reason());
        self.health_changed(endpoint, change);
        self.end_ejection(&runtime, endpoint, ejection_duration);
    }

    /// Counts an ejection of `endpoint`, and returns its duration.
    fn ejection_duration(&self, endpoint: &EndpointRef) -> Duration {
        let first = self.endpoints().routing().eject_for;
        endpoint.state().ejection.ejection_duration(first)
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
        endpoint.state().cold.health.on_change(change);
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

/// Returns the current runtime if it has a timer. Without one, an ejection would last for ever.
fn timed_runtime() -> Option<Handle> {
    _ = clock::sleep_until(clock::now())?;
    Handle::try_current().ok()
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
