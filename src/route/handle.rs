//! Looking at a router, and changing it, while it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shared::{NewRouting, RouterShared};
use super::shell::{InvalidQueueConfig, QueueConfig};
use super::{InvalidRouting, RoutingConfig};
#[cfg(feature = "client")]
use crate::endpoints::HealthReporter;
use crate::endpoints::strategy::forbid_in_strategy;
use crate::endpoints::{Changes, Endpoint, EndpointRef, InvalidRegistry, Registry};
use crate::gate::GateStatus;

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
    /// How many wait and run, what became of the others, and how long the next would wait.
    #[must_use]
    pub fn status(&self) -> GateStatus {
        forbid_in_strategy("RouterHandle::status");
        self.0.state.gate.status()
    }

    /// How many requests were rejected, by the code that they were told.
    #[must_use]
    pub fn rejected(&self) -> BTreeMap<&'static str, u64> {
        self.0.rejected()
    }

    /// Tells the `metrics` facade how many wait and run, and of each endpoint how busy and well it is: sets all
    /// gauges to what is true now. Those of endpoints that are gone become 0.
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
        self.0.state.gate.capacity().endpoints()
    }

    /// What is configured.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.0.state.gate.capacity().registry()
    }

    /// Changes how many requests an endpoint may serve at a time. A lower limit takes effect as slots come
    /// back.
    pub fn set_limit(&self, endpoint: &EndpointRef, slots: u32) {
        forbid_in_strategy("RouterHandle::set_limit");
        endpoint.set_limit(slots);
        self.0.state.gate.capacity_changed();
    }

    /// Says whether an endpoint is well, as its checks do. Those that wait for nothing else are answered.
    pub fn set_healthy(&self, endpoint: &EndpointRef, healthy: bool) {
        forbid_in_strategy("RouterHandle::set_healthy");
        let change = endpoint.state().word.set_up(healthy);
        self.0.health_changed(endpoint, change);
    }

    /// Gives an endpoint nothing new, or again. What it has in flight finishes.
    pub fn set_draining(&self, endpoint: &EndpointRef, draining: bool) {
        forbid_in_strategy("RouterHandle::set_draining");
        let change = endpoint.state().word.set_draining(draining);
        self.0.health_changed(endpoint, change);
    }

    /// How requests are routed.
    #[must_use]
    pub fn routing(&self) -> Arc<RoutingConfig> {
        self.0.routing()
    }

    /// Replaces all endpoints and how requests are routed, in one step. An endpoint of the same name and URL
    /// keeps its slots, health and measures; one that is gone finishes what it has in flight.
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
        let config = routing;
        self.0
            .change(|_| Ok((registry, Some(NewRouting { config, rules }))))
    }

    /// Changes the endpoints: to add one, push it; to remove one, take it out.
    ///
    /// # Errors
    ///
    /// If what comes out is no sound [`Registry`]. Nothing has changed then.
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

    /// Changes the waiting room. Everyone moves over in order; those who no longer fit are rejected, the
    /// latest of the lowest level first.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid. Nothing has changed then.
    pub fn reconfigure(&self, queue: QueueConfig) -> Result<(), InvalidQueueConfig> {
        forbid_in_strategy("RouterHandle::reconfigure");
        self.0.state.reconfigure(queue, |_, _| Ok(()))
    }

    /// Answers everyone who waits and everyone who comes with `shutting_down`. Running requests finish.
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
