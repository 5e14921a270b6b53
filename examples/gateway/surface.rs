//! What the gateway answers: requests for models to their endpoints, the operator's pages, and 404.

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

use crate::log::Answers;
use crate::metrics;
use crate::service::{Handle, Routed};

#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) routed: Routed,
    pub(crate) handle: Handle,
    pub(crate) answers: Answers,
}

/// An endpoint's, or the gateway's own.
pub(crate) type Answer = <Routed as Service<Request<Incoming>>>::Response;

impl Gateway {
    /// Any POST goes where its body says; of everything else there are the operator's pages.
    pub(crate) async fn answer(&self, mut request: Request<Incoming>, peer: SocketAddr) -> Answer {
        if request.method() != Method::POST {
            return self
                .page(request.method(), request.uri().path())
                .map(PermitBody::rejection);
        }
        request.extensions_mut().insert(PeerAddr(peer));
        match self.routed.clone().oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }

    fn page(&self, method: &Method, path: &str) -> Response<Bytes> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return nothing(method, path);
        }
        match path {
            "/v1/models" => json(&models(self.handle.names())),
            "/healthz" => self.healthz(),
            "/metrics" => {
                let text = metrics::page(&self.handle, &self.answers.by_status());
                page("text/plain; version=0.0.4", text)
            }
            "/admin/state" => json(&self.handle.snapshot()),
            _ => nothing(method, path),
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

fn nothing(method: &Method, path: &str) -> Response<Bytes> {
    let message = format!("There is no {method} {path} here");
    error(StatusCode::NOT_FOUND, "not_found", message)
}

/// OpenAI's list of models.
pub(crate) fn models(names: impl IntoIterator<Item = impl Serialize>) -> Value {
    let data: Vec<Value> = names
        .into_iter()
        .map(|id| json!({ "id": id, "object": "model", "created": 0, "owned_by": "tower-triage" }))
        .collect();
    json!({ "object": "list", "data": data })
}

fn json(page_of: &impl Serialize) -> Response<Bytes> {
    let text = serde_json::to_vec(page_of).expect("names and numbers are JSON");
    page("application/json", text)
}

fn page(content_type: &'static str, text: impl Into<Bytes>) -> Response<Bytes> {
    let mut page = Response::new(text.into());
    let content_type = HeaderValue::from_static(content_type);
    page.headers_mut().insert(CONTENT_TYPE, content_type);
    page
}

/// An answer of the gateway's own, in OpenAI's shape of an error.
pub(crate) fn error(status: StatusCode, code: &'static str, message: String) -> Response<Bytes> {
    Rejection::new(status, code, message).into_response()
}
