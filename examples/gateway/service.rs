//! The middle of the gateway: a request in, the answer of the endpoint that can serve it out.

use std::sync::Arc;

use tower::Layer;
use tower_triage::route::{EndpointRef, Forward, Registry, Router, WholeBody};
use tower_triage::{Route, RouteLayer, RouterHandle};

use crate::admin::{EndpointState, QueueState, Snapshot};
use crate::config::Config;

pub(crate) type Routed = Route<Forward<WholeBody>>;

/// The service in front of the endpoints of `registry`, and the handle to watch and close it.
pub(crate) fn service(config: &Config, registry: Registry) -> (Routed, Handle) {
    let router = Router::new(registry)
        .queue(config.queue.clone())
        .body_limit(config.body_limit_bytes);
    let layer = RouteLayer::new(router);
    let handle = Handle(layer.handle());
    (layer.layer(Forward::new()), handle)
}

/// Watches and closes the service.
#[derive(Clone)]
pub(crate) struct Handle(RouterHandle);

impl Handle {
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.0.registry()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let status = self.0.status();
        let state = |endpoint: &EndpointRef| EndpointState {
            name: endpoint.name().to_owned(),
            in_flight: endpoint.in_flight(),
            limit: endpoint.limit(),
            healthy: endpoint.healthy(),
        };
        Snapshot {
            queue: QueueState {
                depth: status.depth,
                running: status.running,
                served: status.served,
                cancelled: status.counts.cancelled,
                rejected: self.0.rejected(),
            },
            endpoints: self.0.endpoints().iter().map(state).collect(),
        }
    }

    /// Takes nothing new from now on.
    pub(crate) fn close(&self) {
        self.0.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.status().closed
    }

    /// Returns when it is closed and nothing runs any more.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}
