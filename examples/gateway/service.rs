//! The routing service, built from a configuration, and the handle that watches and changes it.

use std::collections::HashSet;
use std::time::Duration;

use tower::Layer;
use tower_triage::endpoints::{Changes, EndpointRef};
use tower_triage::gate::LevelStatus;
use tower_triage::route::InvalidRoute;
use tower_triage::upstream::HealthChecks;
use tower_triage::{Route, RouteLayer, RouterHandle};

use crate::admin::{EndpointState, LevelState, QueueState, Snapshot};
use crate::config::{Client, Config};

pub(crate) type Routed = Route<Client>;

/// Builds the service that `config` describes, and its handle.
pub(crate) fn service(config: &Config) -> Result<(Routed, Handle), InvalidRoute> {
    let router = RouteLayer::builder(config.registry.clone())
        .queue(config.queue.clone())
        .routing(config.routing.clone())
        .body_limit(config.body_limit_bytes);
    let layer = router.try_build()?;
    let handle = Handle(layer.handle());
    Ok((layer.layer(config.client.clone()), handle))
}

/// Watches, changes and closes the service.
#[derive(Clone)]
pub(crate) struct Handle(RouterHandle);

impl Handle {
    /// The model names that a request may use: models, then aliases, each once.
    pub(crate) fn names(&self) -> Vec<String> {
        let (registry, routing) = (self.0.registry(), self.0.routing());
        let aliases = routing.aliases.keys().map(String::as_str);
        let mut seen = HashSet::new();
        let names = registry.models().chain(aliases);
        names
            .filter(|&name| seen.insert(name))
            .map(str::to_owned)
            .collect()
    }

    /// Marks every endpoint healthy, as if its check had passed.
    #[cfg(test)]
    pub(crate) fn mark_all_healthy(&self) {
        let endpoints = self.0.endpoints();
        endpoints
            .iter()
            .for_each(|endpoint| self.0.set_healthy(endpoint, true));
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let status = self.0.status();
        Snapshot {
            queue: QueueState {
                depth: status.depth,
                running: status.running,
                served: status.served,
                cancelled: status.stats.cancelled,
                rejected: self.0.rejected(),
                levels: status.levels.into_iter().map(level_state).collect(),
            },
            endpoints: self.0.endpoints().iter().map(endpoint_state).collect(),
        }
    }

    /// Replaces endpoints, `[queue]` and `[routing]` by those of `new`. `old` is the configuration in use.
    pub(crate) fn apply(&self, old: &Config, new: &Config) -> Result<Changes, InvalidRoute> {
        if old.queue != new.queue {
            self.0.reconfigure(new.queue.clone())?;
        }
        let (registry, routing) = (new.registry.clone(), new.routing.clone());
        Ok(self.0.replace(registry, routing)?)
    }

    /// Starts the health checks. They stop when the returned value is dropped.
    pub(crate) fn checks(&self, client: &Client) -> HealthChecks {
        client.checks(&self.0)
    }

    pub(crate) fn record_gauges(&self) {
        self.0.record_gauges();
    }

    /// Rejects all waiting requests and all that arrive from now on.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.status().closed
    }

    /// Waits until the service is closed and no request runs.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

fn level_state(level: LevelStatus) -> LevelState {
    LevelState {
        waiting: level.waiting,
        refused: level.stats.rejected(),
        estimated_wait_seconds: level.estimated_wait.map(|wait| wait.as_secs_f64()),
        target_wait_seconds: level.target_wait.map(|wait| wait.as_secs_f64()),
        reserved: level.reserved,
        lent: level.lent,
        name: level.name,
    }
}

fn endpoint_state(endpoint: &EndpointRef) -> EndpointState {
    let models = endpoint.config().models.iter();
    EndpointState {
        name: endpoint.name().to_owned(),
        in_flight: endpoint.in_flight(),
        limit: endpoint.limit(),
        adaptive: endpoint.config().limit,
        healthy: endpoint.healthy(),
        draining: endpoint.draining(),
        priority: endpoint.priority(),
        first_byte_ms: ms(endpoint.first_byte_latency()),
        total_ms: ms(endpoint.total_latency()),
        models: models.map(|model| model.name.clone()).collect(),
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}
