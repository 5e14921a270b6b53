//! The handle of a router: reports on it and changes it while it runs.

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

/// Reports on a router and changes it while requests wait. Made by
/// [`RouteLayer::handle`](super::RouteLayer::handle); clones are the same handle.
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
/// Methods that report on the waiting room, or change anything, panic if a [`Strategy`](crate::endpoints::Strategy) calls them: it
/// is asked under the lock for which they would wait.
#[derive(Debug, Clone)]
pub struct RouterHandle(pub(super) Arc<RouterShared>);

impl RouterHandle {
    /// How many requests wait and run, how the others ended, and how long the next would wait.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        forbid_in_strategy("RouterHandle::status");
        self.0.state.gate.status()
    }

    /// The gate that requests pass, to acquire a slot [ahead of a request](crate::gate::PermitExtension). Change its
    /// configuration, and close it, with this handle.
    ///
    /// With [`fair_by`](RoutingConfig::fair_by) tokens, the ticket's cost stands for the tokens of the prompt.
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

    /// How many requests were rejected, by code.
    #[must_use]
    pub fn rejected(&self) -> BTreeMap<&'static str, u64> {
        let rejected = self.0.rejected.lock();
        rejected.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the gauges of the `metrics` facade: how many requests wait and run, how long each level waits, which slots are
    /// kept for it and lent, and how busy and healthy each endpoint is; and the counters of what each level was refused.
    /// Gauges of endpoints and levels that have left become 0; a level's estimated wait becomes NaN, its target +Inf.
    ///
    /// Call it before each scrape, or every few seconds. The first call also describes all metrics to the
    /// recorder, which has to be installed by then.
    #[cfg(feature = "metrics")]
    pub fn record_gauges(&self) {
        let (status, endpoints) = (self.status(), self.endpoints());
        self.0.metrics.record_gauges(&status, &endpoints);
    }

    /// Every endpoint with its live numbers, in the registry's order.
    #[must_use]
    pub fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.0.endpoints().endpoints()
    }

    /// The present registry.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.0.endpoints().registry()
    }

    /// Changes how many requests an endpoint may serve at a time. A lower limit takes effect as slots come
    /// back.
    pub fn set_limit(&self, endpoint: &EndpointRef, slots: u32) {
        forbid_in_strategy("RouterHandle::set_limit");
        endpoint.set_limit(slots);
        self.0.state.gate.capacity_changed();
    }

    /// Takes all slots away from the endpoints but those that [`set_lease`](Self::set_lease) gives them for a while, also from
    /// endpoints that are added later. Those that are started on demand keep theirs. It can't be undone.
    ///
    /// For gateways that share the slots of a backend: what a gateway may not use any more, it stops using by itself, even if
    /// it was stopped for a while.
    pub fn lease_slots(&self) {
        forbid_in_strategy("RouterHandle::lease_slots");
        self.0.endpoints().lease_slots();
    }

    /// Sets the number of slots that an endpoint may use until an instant, after [`lease_slots`](Self::lease_slots); before,
    /// it has no effect. From then on, requests wait until there is another lease. The endpoint's own limit, as configured,
    /// [set](Self::set_limit) or measured, holds as well.
    ///
    /// Running requests go on when the lease ends, or is lower.
    pub fn set_lease(&self, endpoint: &EndpointRef, slots: u32, until: Instant) {
        forbid_in_strategy("RouterHandle::set_lease");
        if endpoint.set_lease(slots, until) {
            self.0.state.gate.shared().on_capacity_grown();
        }
    }

    /// Sets whether an endpoint is healthy, as its checks do. Requests that wait for no other endpoint are rejected.
    pub fn set_healthy(&self, endpoint: &EndpointRef, healthy: bool) {
        forbid_in_strategy("RouterHandle::set_healthy");
        let change = endpoint.state().word.set_up(healthy);
        self.0.health_changed(endpoint, change);
    }

    /// Keeps new requests from an endpoint, or ends that. What it has in flight finishes; requests that wait for no other
    /// endpoint are rejected. Ends when the endpoint is removed: one that is added again is in service.
    pub fn set_draining(&self, endpoint: &EndpointRef, draining: bool) {
        forbid_in_strategy("RouterHandle::set_draining");
        let change = endpoint.state().word.set_draining(draining);
        self.0.health_changed(endpoint, change);
    }

    /// The present routing configuration.
    #[must_use]
    pub fn routing(&self) -> Arc<RoutingConfig> {
        self.0.endpoints().routing()
    }

    /// Replaces all endpoints and the routing in one step. An endpoint of the same name and URL keeps its slots, health
    /// and latency; one that has left finishes what it has in flight.
    ///
    /// # Errors
    ///
    /// If the routing is invalid. Nothing has changed then.
    pub fn replace(
        &self,
        registry: Registry,
        routing: RoutingConfig,
    ) -> Result<Changes, InvalidRouting> {
        forbid_in_strategy("RouterHandle::replace");
        let rules = routing.rules()?;
        self.0.change(|_| Ok((registry, Some(rules))))
    }

    /// Changes the endpoints: to add one, push it; to remove one, take it out.
    ///
    /// # Errors
    ///
    /// If the result is no valid [`Registry`]. Nothing has changed then.
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

    /// Changes the waiting room. Waiting requests keep their order; those that no longer fit are rejected, the latest of
    /// the lowest level first.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid. Nothing has changed then.
    pub fn reconfigure(&self, queue: QueueConfig) -> Result<(), InvalidQueueConfig> {
        forbid_in_strategy("RouterHandle::reconfigure");
        self.0.state.reconfigure(queue, |_, _| Ok(()))
    }

    /// Rejects all waiting and all further requests with `shutting_down`. Running requests finish.
    pub fn close(&self) {
        forbid_in_strategy("RouterHandle::close");
        self.0.state.gate.close();
    }

    /// Resolves when the router is closed and the last running request has finished, its body included.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped and called again at any time.
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
