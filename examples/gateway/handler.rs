//! The request handler: routes every POST by its model, and serves the operator's pages.

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::{Value, json};
use tower::{Service, ServiceExt};
use tower_triage::gate::PermitBody;
use tower_triage::rejection::Rejection;
use tower_triage::upstream::PeerAddr;

use crate::log::StatusCounts;
use crate::metrics;
use crate::service::{Handle, Routed};

#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) routed: Routed,
    pub(crate) handle: Handle,
    pub(crate) statuses: StatusCounts,
}

/// A response of an endpoint, or the gateway's own.
pub(crate) type RouteResponse = <Routed as Service<Request<Incoming>>>::Response;

impl Gateway {
    /// Routes a POST by its body, whatever its path; every other method asks for a page.
    pub(crate) async fn handle(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
    ) -> RouteResponse {
        if request.method() != Method::POST {
            return self
                .page(request.method(), request.uri().path())
                .map(PermitBody::rejection);
        }
        request.extensions_mut().insert(PeerAddr(peer));
        match self.routed.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn page(&self, method: &Method, path: &str) -> Response<Bytes> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return not_found(method, path);
        }
        match path {
            "/v1/models" => json(&models(self.handle.names())),
            "/healthz" => self.healthz(),
            "/metrics" => {
                let text = metrics::page(&self.handle, &self.statuses.by_status());
                page("text/plain; version=0.0.4", text)
            }
            "/admin/state" => json(&self.handle.snapshot()),
            _ => not_found(method, path),
        }
    }

    fn healthz(&self) -> Response<Bytes> {
        if self.handle.is_closed() {
            error(
                StatusCode::SERVICE_UNAVAILABLE,
                "shutting_down",
                "the service is shutting down".to_owned(),
            )
        } else {
            page("text/plain; charset=utf-8", "ok\n")
        }
    }
}

fn not_found(method: &Method, path: &str) -> Response<Bytes> {
    let message = format!(
        "no page at {method} {path}: use POST for models, or GET for /v1/models, /healthz, /metrics and /admin/state"
    );
    error(StatusCode::NOT_FOUND, "not_found", message)
}

/// A list of models as OpenAI's API returns it.
pub(crate) fn models(names: impl IntoIterator<Item = impl Serialize>) -> Value {
    let data: Vec<Value> = names
        .into_iter()
        .map(|id| json!({ "id": id, "object": "model", "created": 0, "owned_by": "tower-triage" }))
        .collect();
    json!({ "object": "list", "data": data })
}

fn json(page_of: &impl Serialize) -> Response<Bytes> {
    let text = serde_json::to_vec(page_of).expect("strings and numbers serialize to JSON");
    page("application/json", text)
}

fn page(content_type: &'static str, text: impl Into<Bytes>) -> Response<Bytes> {
    let mut page = Response::new(text.into());
    let content_type = HeaderValue::from_static(content_type);
    page.headers_mut().insert(CONTENT_TYPE, content_type);
    page
}

/// An error response in the format of OpenAI's API.
pub(crate) fn error(status: StatusCode, code: &'static str, message: String) -> Response<Bytes> {
    Rejection::new(status, code, message).into_response()
}
