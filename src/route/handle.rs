//! The handle of a router, which reports on it and changes it while it runs.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::shared::RouterShared;
use super::{InvalidRouting, RoutingConfig};
#[cfg(feature = "client")]
use crate::endpoints::EngineLoad;
use crate::endpoints::strategy::forbid_in_strategy;
use crate::endpoints::{
    Changes, Endpoint, EndpointRef, Endpoints, HealthFlags, InvalidRegistry, Registry,
};
#[cfg(feature = "client")]
use crate::gate;
use crate::gate::{Gate, GateStatus};
use crate::openai::BodyMemory;
use crate::queue::{InvalidQueueConfig, QueueConfig};

/// A handle that reports on a router and changes it while requests wait.
/// [`RouteLayer::handle`](super::RouteLayer::handle) creates one, and clones are the same handle.
///
/// ```
/// use tower_triage::RouteLayer;
/// use tower_triage::endpoints::{Endpoint, Model, Registry};
///
/// let gpu = |name| {
///     let url = http::Uri::from_static("http://127.0.0.1:9001");
///     Endpoint::new(name, url).model(Model::new("llama3:8b"))
/// };
/// let handle = RouteLayer::builder(Registry::new(vec![gpu("gpu-1")])?).build().handle();
///
/// let changes = handle.change_endpoints(|endpoints| endpoints.push(gpu("gpu-2")))?;
/// assert_eq!(changes.added, ["gpu-2"]);
/// let endpoints = handle.endpoints();
/// handle.set_draining(&endpoints[0], true); // before a restart
/// assert!(endpoints[0].draining());
/// assert_eq!(handle.status().depth, 0);
/// # Ok::<(), tower_triage::endpoints::InvalidRegistry>(())
/// ```
///
/// # Panics
///
/// Methods that report on the waiting room, or change anything, panic if a [`Strategy`](crate::endpoints::Strategy)
/// calls them, because it runs under their lock.
#[derive(Debug, Clone)]
pub struct RouteHandle(pub(super) Arc<RouterShared>);

impl RouteHandle {
    /// Returns the numbers of waiting and running requests, the outcomes of the others, and the estimated wait.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        forbid_in_strategy("RouteHandle::status");
        self.0.state.gate.status()
    }

    /// Returns the gate that all requests pass, to acquire a slot [ahead of a request](crate::gate::PermitExtension). With
    /// [`fair_by`](RoutingConfig::fair_by) tokens, the cost of the ticket stands for the tokens of the prompt.
    ///
    /// ```
    /// use tower_triage::endpoints::{Endpoint, Model, Registry, Requirements};
    /// use tower_triage::{Priority, RouteLayer, Ticket};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let url = http::Uri::from_static("http://127.0.0.1:9001");
    /// let gpu = Endpoint::new("gpu-1", url).model(Model::new("llama3:8b"));
    /// let layer = RouteLayer::builder(Registry::new(vec![gpu])?).build();
    ///
    /// let handle = layer.handle();
    /// let gate = handle.gate();
    /// let demand = gate.capacity().demand(&Requirements::new("llama3:8b"));
    /// let permit = gate.acquire(Ticket::from(Priority(1)).patient(), demand).await?;
    /// assert_eq!(permit.lease().endpoint().name(), "gpu-1");
    ///
    /// let mut request = http::Request::new(r#"{"model": "llama3:8b"}"#);
    /// request.extensions_mut().insert(permit.into_extension());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn gate(&self) -> &Gate<Endpoints> {
        forbid_in_strategy("RouteHandle::gate");
        &self.0.state.gate
    }

    /// Returns the memory of request bodies, or `None` if it is unlimited. A service in front that reads bodies itself can
    /// [count](crate::openai::ReadBody::counted_in) them in it.
    #[must_use]
    pub fn body_memory(&self) -> Option<&BodyMemory> {
        self.0.body_memory.as_ref()
    }

    /// Returns the number of rejected requests for each error code.
    #[must_use]
    pub fn rejected(&self) -> BTreeMap<&'static str, u64> {
        let rejected = self.0.rejected.lock();
        rejected.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the gauges of the `metrics` facade, and the counters of the rejections of each level. If an endpoint or a level
    /// has left, its gauges become 0, except that the estimated wait of a level becomes NaN and its target +Inf.
    ///
    /// Call this before each scrape. The first call also describes all metrics to the recorder, so the recorder has to be
    /// installed by then.
    #[cfg(feature = "metrics")]
    pub fn record_gauges(&self) {
        let (status, endpoints) = (self.status(), self.endpoints());
        self.0.metrics.record_gauges(&status, &endpoints);
    }

    /// Returns every endpoint with its live numbers, in the order of the registry.
    #[must_use]
    pub fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.0.endpoints().endpoints()
    }

    /// Returns the current registry.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.0.endpoints().registry()
    }

    /// Sets the number of requests that an endpoint may serve at a time, as [`EndpointRef::set_limit`] does.
    pub fn set_limit(&self, endpoint: &EndpointRef, slots: u32) {
        forbid_in_strategy("RouteHandle::set_limit");
        endpoint.set_limit(slots);
    }

    /// Takes all slots away from the endpoints for good, except those that [`set_lease`](Self::set_lease) grants for a while.
    /// This also holds for endpoints that are added later. Endpoints that are started on demand keep their slots.
    ///
    /// This is meant for gateways that share the slots of a backend. A gateway stops using slots by itself when its
    /// lease ends, even if the gateway was stopped for a while.
    pub fn lease_slots(&self) {
        forbid_in_strategy("RouteHandle::lease_slots");
        self.0.endpoints().lease_slots();
    }

    /// Sets the number of slots that an endpoint may use until the instant `until`, after
    /// [`lease_slots`](Self::lease_slots). The endpoint's own limit, as configured, [set](Self::set_limit) or measured,
    /// holds as well. Running requests go on when the lease ends or becomes lower.
    pub fn set_lease(&self, endpoint: &EndpointRef, slots: u32, until: Instant) {
        forbid_in_strategy("RouteHandle::set_lease");
        if endpoint.set_lease(slots, until) {
            self.0.state.gate.shared().on_capacity_grown();
        }
    }

    /// Sets the health of an endpoint, as its health checks do. Requests that wait only for an unhealthy endpoint are
    /// rejected.
    pub fn set_healthy(&self, endpoint: &EndpointRef, healthy: bool) {
        forbid_in_strategy("RouteHandle::set_healthy");
        let change = endpoint.state().word.set_up(healthy);
        self.0.health_changed(endpoint, change);
    }

    /// Keeps new requests from an endpoint, or allows them again. Requests in flight finish, while requests that wait
    /// only for this endpoint are rejected. Draining ends when the endpoint is removed.
    pub fn set_draining(&self, endpoint: &EndpointRef, draining: bool) {
        forbid_in_strategy("RouteHandle::set_draining");
        let change = endpoint.state().word.set(HealthFlags::DRAINING, draining);
        self.0.health_changed(endpoint, change);
    }

    /// Keeps new requests from an endpoint for a while, as if it had failed too many of them: for
    /// [`eject_for`](RoutingConfig::eject_for), which doubles with each ejection in a row. Then one request probes the
    /// endpoint, and its success ends the ejection. Requests in flight finish.
    ///
    /// Returns `false` if the endpoint has to stay in service, because it is the last one of a model or because
    /// [`max_ejected_percent`](RoutingConfig::max_ejected_percent) are ejected already. This is also the case outside of a
    /// Tokio runtime with a timer, which would end the ejection. To take the last endpoint out of service, use
    /// [`set_draining`](Self::set_draining).
    pub fn eject(&self, endpoint: &EndpointRef) -> bool {
        forbid_in_strategy("RouteHandle::eject");
        self.0.eject_by_operator(endpoint)
    }

    /// Returns the current routing configuration.
    #[must_use]
    pub fn routing(&self) -> Arc<RoutingConfig> {
        self.0.endpoints().routing()
    }

    /// Replaces all endpoints and the routing in one step. An endpoint of the same name and URL keeps its state, while an
    /// endpoint that has left finishes its requests in flight.
    ///
    /// # Errors
    ///
    /// If the routing is invalid. The router is unchanged then.
    pub fn replace(
        &self,
        registry: Registry,
        routing: RoutingConfig,
    ) -> Result<Changes, InvalidRouting> {
        forbid_in_strategy("RouteHandle::replace");
        let rules = routing.rules()?;
        self.0.change(|_| Ok((registry, Some(rules))))
    }

    /// Changes the list of endpoints. Push an endpoint to add it, or take it out of the list to remove it.
    ///
    /// # Errors
    ///
    /// If the result is an invalid [`Registry`]. The router is unchanged then.
    pub fn change_endpoints(
        &self,
        change: impl FnOnce(&mut Vec<Endpoint>),
    ) -> Result<Changes, InvalidRegistry> {
        forbid_in_strategy("RouteHandle::change_endpoints");
        self.0.change(|registry| {
            let mut endpoints = registry.endpoints().to_vec();
            change(&mut endpoints);
            Ok((Registry::new(endpoints)?, None))
        })
    }

    /// Changes the configuration of the waiting room. Waiting requests keep their order. Requests that exceed the new
    /// limits are rejected, the latest of the lowest level first.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid. The waiting room is unchanged then.
    pub fn reconfigure(&self, queue: QueueConfig) -> Result<(), InvalidQueueConfig> {
        forbid_in_strategy("RouteHandle::reconfigure");
        self.0.state.reconfigure(queue, |_, _| Ok(()))
    }

    /// Rejects all waiting and all later requests with `shutting_down`, while running requests finish.
    pub fn close(&self) {
        forbid_in_strategy("RouteHandle::close");
        self.0.state.gate.close();
    }

    /// Waits until the router is closed and the last running request has finished, including its body.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped and created again at any time.
    pub async fn closed(&self) {
        self.0.state.gate.closed().await;
    }
}

/// The reports of health checks and of readings of an engine's load.
#[cfg(feature = "client")]
impl RouteHandle {
    /// Returns a receiver that is marked as changed after each change of the endpoints.
    pub(crate) fn changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Records that `endpoint` has passed a check, so that a request may probe it before its ejection is over.
    pub(crate) fn check_passed(&self, endpoint: &EndpointRef) {
        let change = endpoint.state().word.set(HealthFlags::SILENT, false);
        self.0.health_changed(endpoint, change);
        if self.0.endpoints().half_open(endpoint) {
            self.0.state.gate.capacity_changed();
        }
    }

    /// Returns `true` if `endpoint` is the last one in service for a model that no fallback can take over.
    pub(crate) fn is_last(&self, endpoint: &EndpointRef) -> bool {
        self.0.endpoints().table.load().is_last(endpoint)
    }

    /// Forgets the past checks of `endpoint`, because it is not checked any more.
    pub(crate) fn forget_checks(&self, endpoint: &EndpointRef) {
        let change = endpoint.state().word.forget_checks();
        if self.endpoints().iter().any(|it| it == endpoint) {
            self.0.health_changed(endpoint, change);
        } else if change.is_new() {
            // The endpoint has left the registry, so its health is not logged any more, but requests may still wait for
            // it.
            self.0.state.gate.capacity_changed();
        }
    }

    /// Records a reading of the load of `endpoint`'s engine, or `None` if the reading failed.
    pub(crate) fn engine_said(&self, endpoint: &EndpointRef, load: Option<EngineLoad>) {
        if endpoint.engine_said(load, gate::now()) {
            self.0.state.gate.capacity_changed();
        }
    }
}
