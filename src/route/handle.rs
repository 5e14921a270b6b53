//! Looking at a router, and changing it, while it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::service::Desk;
use super::{EndpointRef, Registry};
use crate::gate::Status;
use crate::queue::{ConfigError, QueueConfig};

/// Reports on a router and changes it while requests wait. Made by
/// [`RouteLayer::handle`](super::RouteLayer::handle); clones are the same handle.
#[derive(Debug, Clone)]
pub struct RouterHandle(pub(super) Arc<Desk>);

impl RouterHandle {
    /// How many wait and run, what became of the others, and how long the next would wait.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.common.gate.status()
    }

    /// How many requests were rejected, by the code that they were told.
    #[must_use]
    pub fn rejected(&self) -> BTreeMap<&'static str, u64> {
        self.0.rejected()
    }

    /// Every endpoint with its live numbers, in the registry's order.
    #[must_use]
    pub fn endpoints(&self) -> Arc<[EndpointRef]> {
        self.0.common.gate.capacity().endpoints()
    }

    /// What is configured.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.0.common.gate.capacity().registry()
    }

    /// Changes how many requests an endpoint may serve at a time. A lower limit takes effect as slots come
    /// back.
    pub fn set_limit(&self, endpoint: &EndpointRef, slots: u32) {
        endpoint.set_limit(slots);
        self.0.common.gate.capacity_changed();
    }

    /// Says whether an endpoint is given requests. Those that wait for nothing else are answered.
    pub fn set_healthy(&self, endpoint: &EndpointRef, healthy: bool) {
        endpoint.set_healthy(healthy);
        self.0.common.gate.capacity_changed();
    }

    /// Changes the waiting room. Everyone moves over in order; those who no longer fit are rejected, the
    /// latest of the lowest level first.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid. Nothing has changed then.
    pub fn reconfigure(&self, queue: QueueConfig) -> Result<(), ConfigError> {
        self.0.common.reconfigure(queue, |_, _| Ok(()))
    }

    /// Answers everyone who waits and everyone who comes with `shutting_down`. Running requests finish.
    pub fn close(&self) {
        self.0.common.gate.close();
    }

    /// Resolves when the router is closed and the last running request has finished, its body included.
    ///
    /// # Cancel safety
    ///
    /// It may be dropped and called again at any time.
    pub async fn closed(&self) {
        self.0.common.gate.closed().await;
    }
}
