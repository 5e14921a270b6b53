//! The middle of the gateway: a request in, the answer of the endpoint that can serve it out.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::Full;
use tokio::sync::watch;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tower_triage::route::{
    EndpointLease, EndpointRef, Endpoints, Forward, ReadBody, Registry, Requirements, RouteError,
};
use tower_triage::{Capacity, Denied};

use crate::admin::{EndpointState, QueueState, Snapshot};
use crate::config::Config;
use crate::guarded::Guarded;
use crate::surface;

pub(crate) type Routed = BoxCloneSyncService<Request, Response, Infallible>;

/// The service in front of the endpoints of `registry`, and the handle to watch and close it.
pub(crate) fn service(config: &Config, registry: Registry) -> (Routed, Handle) {
    if !config.queue.is_empty() {
        tracing::warn!("[queue] is not acted on yet: what finds no slot is turned away");
    }
    let handle = Handle(Arc::new(Shared {
        endpoints: Endpoints::new(registry),
        running: watch::Sender::new(Running {
            count: 0,
            closed: false,
        }),
        served: Mutex::default(),
        rejected: Mutex::default(),
    }));
    let limit = config.body_limit_bytes;
    let forward = Forward::new();
    let shared = handle.clone();
    let routed = tower::service_fn(move |request| {
        let (shared, forward) = (shared.clone(), forward.clone());
        async move { Ok(route(&shared, forward, request, limit).await) }
    });
    (BoxCloneSyncService::new(routed), handle)
}

async fn route(
    handle: &Handle,
    forward: Forward<Full<axum::body::Bytes>>,
    request: Request,
    limit: usize,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let permit = async {
        let body = ReadBody::new(body, limit).await.map_err(Refusal::Never)?;
        let asked = Requirements::from_json(&body).map_err(Refusal::Never)?;
        let permit = handle.lease(&asked)?;
        Ok((permit, asked.model.into_owned(), body))
    };
    let (permit, model, body) = match permit.await {
        Ok(admitted) => admitted,
        Err(refusal) => return handle.refuse(&refusal),
    };
    let endpoint = permit.endpoint.clone();
    parts.extensions.insert(endpoint.clone());
    let answer = forward
        .oneshot(Request::from_parts(parts, Full::from(body)))
        .await;
    let response = match answer {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let mut response = response.map(|body| Guarded::body(Body::new(body), permit));
    let headers = response.headers_mut();
    headers.insert("x-triage-endpoint", endpoint.header_value().clone());
    if let Ok(model) = HeaderValue::from_bytes(model.as_bytes()) {
        headers.insert("x-triage-model", model);
    }
    headers.insert("server-timing", HeaderValue::from_static("queue;dur=0"));
    response
}

/// Watches and closes the service.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Shared>);

struct Shared {
    endpoints: Endpoints,
    running: watch::Sender<Running>,
    served: Mutex<u64>,
    rejected: Mutex<BTreeMap<&'static str, u64>>,
}

struct Running {
    count: usize,
    closed: bool,
}

enum Refusal {
    Busy,
    ShuttingDown,
    Never(RouteError),
}

impl Handle {
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.0.endpoints.registry()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let endpoints = self.0.endpoints.endpoints();
        let state = |endpoint: &EndpointRef| EndpointState {
            name: endpoint.name().to_owned(),
            in_flight: endpoint.in_flight(),
            limit: endpoint.limit(),
            healthy: endpoint.healthy(),
        };
        Snapshot {
            queue: QueueState {
                depth: 0,
                running: self.0.running.borrow().count,
                served: *self.0.served.lock().unwrap_or_else(PoisonError::into_inner),
                rejected: self
                    .0
                    .rejected
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone(),
            },
            endpoints: endpoints.iter().map(state).collect(),
        }
    }

    /// Takes nothing new from now on.
    pub(crate) fn close(&self) {
        self.0.running.send_modify(|running| running.closed = true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.running.borrow().closed
    }

    /// Returns when it is closed and nothing runs any more.
    pub(crate) async fn closed(&self) {
        let mut running = self.0.running.subscribe();
        let _ = running
            .wait_for(|running| running.closed && running.count == 0)
            .await;
    }

    fn lease(&self, asked: &Requirements<'_>) -> Result<Permit, Refusal> {
        let admitted = self.0.running.send_if_modified(|running| {
            running.count += usize::from(!running.closed);
            !running.closed
        });
        if !admitted {
            return Err(Refusal::ShuttingDown);
        }
        let endpoints = &self.0.endpoints;
        match endpoints.try_lease(&endpoints.demand(asked)) {
            Ok(lease) => {
                *self.0.served.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                let endpoint = lease.endpoint().clone();
                let lease = Some(lease);
                Ok(Permit {
                    handle: self.clone(),
                    lease,
                    endpoint,
                })
            }
            Err(denied) => {
                self.0.running.send_modify(|running| running.count -= 1);
                Err(match denied {
                    Denied::Busy => Refusal::Busy,
                    Denied::Never(error) => Refusal::Never(error),
                })
            }
        }
    }

    fn refuse(&self, refusal: &Refusal) -> Response {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let (status, code, message, param) = match refusal {
            Refusal::Busy => (
                unavailable,
                "queue_disabled",
                "Every slot is busy".to_owned(),
                None,
            ),
            Refusal::ShuttingDown => (
                unavailable,
                "shutting_down",
                "The service is shutting down".to_owned(),
                None,
            ),
            Refusal::Never(error) => (
                error.status(),
                error.code(),
                error.to_string(),
                error.param(),
            ),
        };
        *self
            .0
            .rejected
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(code)
            .or_default() += 1;
        let mut response = surface::error(status, code, &message, param);
        if status == unavailable {
            response
                .headers_mut()
                .insert("retry-after", HeaderValue::from_static("1"));
        }
        response
    }
}

struct Permit {
    handle: Handle,
    lease: Option<EndpointLease>,
    endpoint: EndpointRef,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.handle.0.endpoints.release(lease);
        }
        self.handle
            .0
            .running
            .send_modify(|running| running.count -= 1);
    }
}
