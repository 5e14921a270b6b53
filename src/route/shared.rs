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
use crate::admit::Tenant;
use crate::clock;
use crate::endpoints::latency::CoarseInstant;
use crate::endpoints::{
    Changes, EndpointLease, EndpointRef, Endpoints, HealthChange, HealthFlags, RefusalBound,
    Registry, RoutingRules,
};
use crate::gate::{self, Gate, Permit};
use crate::openai::BodyMemory;
use crate::service::LayerState;

/// The longest time for which an endpoint that answers nobody is the last resort.
const SILENT_FOR: Duration = Duration::from_secs(30);

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
        self.end_silences();
        self.state.gate.capacity_changed();
        self.changed.send_replace(());
        Ok(changes)
    }

    pub(super) fn endpoints(&self) -> &Endpoints {
        self.state.gate.capacity()
    }

    /// Updates the health of the permit's endpoint after a response of the class `class` at `now`. A failure that does not
    /// `count` may be the request's own fault, because it failed elsewhere, too, or because only its tenant has failures.
    #[inline]
    pub(super) fn learn(
        self: &Arc<Self>,
        permit: &mut Permit<Endpoints>,
        class: ResponseClass,
        counts: bool,
        now: Instant,
    ) {
        let lease = permit.lease_mut();
        let endpoint = &lease.decision.endpoint;
        let state = endpoint.state();
        if class.is_answered() {
            state.cold.activity.fetch_add(1, Relaxed);
            if let Some(change) = state.word.answered() {
                self.health_changed(endpoint, change);
            }
        }
        // What the endpoint did not serve decides nothing about a probe, so the next request probes again.
        let has_failed = match class {
            ResponseClass::Unknown { .. } | ResponseClass::Rejected | ResponseClass::Refused(_) => {
                return;
            }
            ResponseClass::Failure { .. } => {
                state.cold.failures.fetch_add(1, Relaxed);
                true
            }
            ResponseClass::Success => false,
        };
        if has_failed && !counts {
            return;
        }
        let probe = lease.probe.take();
        let is_probe = probe.is_some_and(|probe| state.word.load().is_probed_by(probe));
        if has_failed {
            return self.failed(endpoint, is_probe);
        }
        if let Some(called) = lease.called {
            let took = now.saturating_duration_since(called);
            state.latency.answered(took, CoarseInstant::at(now));
        }
        state.cold.refusals.served(lease.in_flight);
        if is_probe {
            state.ejection.closed();
            self.health_changed(endpoint, state.word.close());
        } else {
            state.ejection.served(); // nearly every request is not a probe
        }
    }

    /// Counts a failure of `endpoint`, and ejects the endpoint if there were too many, or if a probe failed.
    #[cold]
    fn failed(self: &Arc<Self>, endpoint: &EndpointRef, is_probe: bool) {
        let eject_after = self.endpoints().routing().eject_after;
        if let Some(why) = endpoint.state().ejection.failed(eject_after) {
            self.eject(endpoint, || why);
        } else if is_probe {
            self.eject(endpoint, || "the probe failed".to_owned());
        }
    }

    /// Learns from a request whose caller left before a response came. If that took many times the usual time, and the endpoint
    /// gave no sign of life meanwhile, other endpoints that can serve the same go first until it answers, passes a check, or some
    /// time has passed. Until then it gets one request at a time.
    ///
    /// It is no failure, because a client may ask for a longer answer than all others did, and no one else at that time.
    #[cold]
    pub(super) fn given_up(self: &Arc<Self>, lease: &EndpointLease) {
        let Some(called) = lease.called else {
            return;
        };
        let (endpoint, now) = (lease.endpoint(), gate::now());
        let state = endpoint.state();
        let took = now.saturating_duration_since(called);
        let is_long = state.latency.given_up(took, CoarseInstant::at(now));
        let is_silent = state.cold.activity.load(Relaxed) == lease.activity;
        if !is_long || !is_silent || !self.endpoints().table.load().is_replaceable(endpoint) {
            return;
        }
        let Some(runtime) = timed_runtime() else {
            return; // without a timer, the silence might last for ever
        };
        let change = state.word.set(HealthFlags::SILENT, true);
        if !change.is_new() {
            return;
        }
        tracing::debug!(
            endpoint = endpoint.name(),
            "the endpoint answers nobody, so others go first"
        );
        self.health_changed(endpoint, change);
        let end = SilenceEnd {
            shared: Arc::downgrade(self), // weak, so that the task does not keep the router alive
            endpoint: endpoint.clone(),
            // Counted only where a silence begins, because the timer of one that lasts would not end it otherwise.
            number: state.cold.silences.fetch_add(1, Relaxed).wrapping_add(1),
        };
        runtime.spawn(async move {
            tokio::time::sleep(SILENT_FOR).await;
            drop(end);
        });
    }

    /// Returns `true` if trouble of a request of `tenant` at `endpoint`, a failure or a refusal, may be the tenant's own. Other
    /// tenants are served there, so it must not take the endpoint away from them.
    #[cold]
    pub(super) fn is_own_trouble(
        &self,
        endpoint: &EndpointRef,
        tenant: Tenant,
        now: Instant,
    ) -> bool {
        endpoint.state().cold.tenants.trouble(tenant, now)
    }

    /// Counts a response body of the endpoint that broke off or had an error in it, and ejects the endpoint if there were too
    /// many. If it `is_own` trouble of one tenant, it does not count.
    pub(super) fn body_failed(self: &Arc<Self>, endpoint: &EndpointRef, is_own: bool) {
        let routing = self.endpoints().routing();
        let state = endpoint.state();
        state.cold.failures.fetch_add(1, Relaxed);
        if !is_own && state.ejection.resets.failed(routing.eject_after) {
            let count = routing.eject_after;
            self.eject(endpoint, || {
                format!("{count} responses in a row broke off or had an error in them")
            });
        }
    }

    /// Bounds the limit of an endpoint that refused a request to what it takes, and begins to raise it again.
    #[cold]
    pub(super) fn refused(self: &Arc<Self>, endpoint: &EndpointRef, retry_after: Option<Duration>) {
        let Some(runtime) = timed_runtime() else {
            return; // without a timer, the bound would stay for ever
        };
        let in_flight = endpoint.in_flight(); // with the refused request
        let (needs_timer, _) =
            endpoint.change_refusals(|refusals| refusals.refused(in_flight, retry_after));
        tracing::debug!(
            endpoint = endpoint.name(),
            in_flight,
            "the endpoint is full"
        );
        if !needs_timer {
            return;
        }
        let recovery = Recovery {
            shared: Arc::downgrade(self), // weak, so that the task does not keep the router alive
            endpoint: endpoint.clone(),
            is_over: false,
        };
        runtime.spawn(recovery.run());
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
        self.end_silences();
        self.state.gate.capacity_changed();
    }

    /// Ends the silence of endpoints that others can no longer replace. They get all their slots again.
    fn end_silences(&self) {
        let table = self.endpoints().table.load();
        // Each turn ends one silence.
        while let Some(endpoint) = table.needed_though_silent() {
            let change = endpoint.state().word.set(HealthFlags::SILENT, false);
            endpoint.state().cold.health.on_change(change);
        }
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

/// The task that raises the limit of an endpoint that refused requests, step by step. If it is dropped before the last step,
/// the bound goes at once, because the runtime that would have measured the pauses has ended.
struct Recovery {
    shared: Weak<RouterShared>,
    endpoint: EndpointRef,
    is_over: bool,
}

impl Recovery {
    async fn run(mut self) {
        while let Some(mut pause) = self.endpoint.next_refusals_step() {
            tokio::time::sleep(pause).await;
            // A refusal in the meantime may ask for a longer pause.
            while let Some(longer) = self.endpoint.pause_for_refusals().filter(|it| *it > pause) {
                tokio::time::sleep(longer - pause).await;
                pause = longer;
            }
            let own = self.endpoint.own_limit();
            let has_more = self
                .endpoint
                .change_refusals(|refusals| refusals.grow(own))
                .1;
            self.notify(has_more);
        }
        self.is_over = true;
    }

    fn notify(&self, has_more: bool) {
        if has_more && let Some(shared) = self.shared.upgrade() {
            shared.state.gate.capacity_changed();
        }
    }
}

impl Drop for Recovery {
    fn drop(&mut self) {
        if !self.is_over {
            let ((), has_more) = self.endpoint.change_refusals(RefusalBound::lift);
            self.notify(has_more);
        }
    }
}

/// A guard that ends the silence of an endpoint when it is dropped. This happens after some time, or at the end of the runtime
/// that would have measured it.
struct SilenceEnd {
    shared: Weak<RouterShared>,
    endpoint: EndpointRef,
    /// The number of the silence. The endpoint may have answered, and be silent again.
    number: u32,
}

impl Drop for SilenceEnd {
    fn drop(&mut self) {
        let state = self.endpoint.state();
        if let Some(shared) = self.shared.upgrade()
            && state.cold.silences.load(Relaxed) == self.number
        {
            let change = state.word.set(HealthFlags::SILENT, false);
            shared.health_changed(&self.endpoint, change);
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
