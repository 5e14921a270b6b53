//! The middle of the gateway: a request in, the answer of the endpoint that can serve it out.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use tower::ServiceBuilder;
use tower::util::BoxCloneSyncService;
use tower_triage::route::{EndpointRef, Forward, Registry, Router};
use tower_triage::{RouteLayer, RouterHandle};

use crate::admin::{EndpointState, QueueState, Snapshot};
use crate::config::Config;

pub(crate) type Routed = BoxCloneSyncService<Request, Response, Infallible>;

/// The service in front of the endpoints of `registry`, and the handle to watch and close it.
pub(crate) fn service(config: &Config, registry: Registry) -> (Routed, Handle) {
    let router = Router::new(registry)
        .queue(config.queue.clone())
        .body_limit(config.body_limit_bytes);
    let layer = RouteLayer::new(router);
    let handle = Handle(layer.handle());
    let routed = ServiceBuilder::new()
        .map_response(|response: axum::http::Response<_>| response.map(Body::new))
        .layer(layer)
        .service(Forward::new());
    (BoxCloneSyncService::new(routed), handle)
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

    pub(crate) fn record_gauges(&self) {
        self.0.record_gauges();
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
