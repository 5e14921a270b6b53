//! The handle of a router, which reports on it and changes it while it runs.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::shared::RouterShared;
use super::{InvalidRouting, RoutingConfig};
#[cfg(feature = "client")]
use crate::endpoints::HealthReporter;
use crate::endpoints::strategy::forbid_in_strategy;
use crate::endpoints::{Changes, Endpoint, EndpointRef, Endpoints, InvalidRegistry, Registry};
use crate::gate::{Gate, GateStatus};
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
/// calls them. The strategy runs under the lock that these methods would wait for.
#[derive(Debug, Clone)]
pub struct RouterHandle(pub(super) Arc<RouterShared>);

impl RouterHandle {
    /// Returns the numbers of waiting and running requests, the outcomes of the others, and the estimated wait of the
    /// next request.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        forbid_in_strategy("RouterHandle::status");
        self.0.state.gate.status()
    }

    /// Returns the gate that all requests pass. Use it to acquire a slot
    /// [ahead of a request](crate::gate::PermitExtension). To change its configuration or to close it, use this handle.
    ///
    /// With [`fair_by`](RoutingConfig::fair_by) tokens, the cost of the ticket stands for the tokens of the prompt.
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
        forbid_in_strategy("RouterHandle::gate");
        &self.0.state.gate
    }

    /// Returns the number of rejected requests for each error code.
    #[must_use]
    pub fn rejected(&self) -> BTreeMap<&'static str, u64> {
        let rejected = self.0.rejected.lock();
        rejected.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the gauges of the `metrics` facade. They show the numbers of waiting and running requests, the
    /// estimated wait and the reserved and lent slots of each level, and the load and health of each endpoint. The
    /// counters of the rejections of each level are set, too. If an endpoint or a level has left, its gauges become 0,
    /// except that the estimated wait of a level becomes NaN and its target +Inf.
    ///
    /// Call this before each scrape, or every few seconds. The first call also describes all metrics to the recorder,
    /// so the recorder has to be installed by then.
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

    /// Sets the number of requests that an endpoint may serve at a time. A lower limit takes effect as slots come back.
    pub fn set_limit(&self, endpoint: &EndpointRef, slots: u32) {
        forbid_in_strategy("RouterHandle::set_limit");
        endpoint.set_limit(slots);
        self.0.state.gate.capacity_changed();
    }

    /// Takes all slots away from the endpoints, except those that [`set_lease`](Self::set_lease) grants for a while.
    /// This also holds for endpoints that are added later, while endpoints that are started on demand keep their slots.
    /// The change is permanent.
    ///
    /// This is meant for gateways that share the slots of a backend. A gateway stops using slots by itself when its
    /// lease ends, even if the gateway was stopped for a while.
    pub fn lease_slots(&self) {
        forbid_in_strategy("RouterHandle::lease_slots");
        self.0.endpoints().lease_slots();
    }

    /// Sets the number of slots that an endpoint may use until the instant `until`. It has an effect only after
    /// [`lease_slots`](Self::lease_slots). After `until`, requests wait until there is another lease. The endpoint's
    /// own limit, as configured, [set](Self::set_limit) or measured, holds as well.
    ///
    /// Running requests go on when the lease ends or becomes lower.
    pub fn set_lease(&self, endpoint: &EndpointRef, slots: u32, until: Instant) {
        forbid_in_strategy("RouterHandle::set_lease");
        if endpoint.set_lease(slots, until) {
            self.0.state.gate.shared().on_capacity_grown();
        }
    }

    /// Sets the health of an endpoint, as its health checks do. Requests that wait only for an unhealthy endpoint are
    /// rejected.
    pub fn set_healthy(&self, endpoint: &EndpointRef, healthy: bool) {
        forbid_in_strategy("RouterHandle::set_healthy");
        let change = endpoint.state().word.set_up(healthy);
        self.0.health_changed(endpoint, change);
    }

    /// Keeps new requests from an endpoint, or allows them again. Requests in flight finish, while requests that wait
    /// only for this endpoint are rejected. Draining ends when the endpoint is removed, so an endpoint that is added
    /// again is in service.
    pub fn set_draining(&self, endpoint: &EndpointRef, draining: bool) {
        forbid_in_strategy("RouterHandle::set_draining");
        let change = endpoint.state().word.set_draining(draining);
        self.0.health_changed(endpoint, change);
    }

    /// Returns the current routing configuration.
    #[must_use]
    pub fn routing(&self) -> Arc<RoutingConfig> {
        self.0.endpoints().routing()
    }

    /// Replaces all endpoints and the routing in one step. An endpoint of the same name and URL keeps its slots, health
    /// and latency, while an endpoint that has left finishes its requests in flight.
    ///
    /// # Errors
    ///
    /// If the routing is invalid. The router is unchanged then.
    pub fn replace(
        &self,
        registry: Registry,
        routing: RoutingConfig,
    ) -> Result<Changes, InvalidRouting> {
        forbid_in_strategy("RouterHandle::replace");
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
        forbid_in_strategy("RouterHandle::change_endpoints");
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
        forbid_in_strategy("RouterHandle::reconfigure");
        self.0.state.reconfigure(queue, |_, _| Ok(()))
    }

    /// Rejects all waiting and all later requests with `shutting_down`, while running requests finish.
    pub fn close(&self) {
        forbid_in_strategy("RouterHandle::close");
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

#[cfg(feature = "client")]
impl From<&RouterHandle> for HealthReporter {
    fn from(handle: &RouterHandle) -> Self {
        Self::new(Arc::clone(&handle.0) as _)
    }
}
