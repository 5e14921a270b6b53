//! What the gateway answers: requests for models to their endpoints, the operator's pages, and 404.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Json, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_triage::Rejection;
use tower_triage::route::PeerAddr;

use crate::admin::Snapshot;
use crate::log::{self, Answers};
use crate::metrics;
use crate::service::{Handle, Routed};

#[derive(Clone)]
pub(crate) struct Gateway {
    pub(crate) routed: Routed,
    pub(crate) handle: Handle,
    pub(crate) answers: Answers,
}

pub(crate) fn app(gateway: Gateway) -> Router {
    Router::new()
        .route("/v1/models", get(list).fallback(route))
        .route("/healthz", get(healthz).fallback(route))
        .route("/metrics", get(metrics).fallback(route))
        .route("/admin/state", get(state).fallback(route))
        .fallback(route)
        .layer(middleware::from_fn_with_state(
            gateway.answers.clone(),
            log::each,
        ))
        .with_state(gateway)
}

/// Any POST goes where its body says; of everything else there is nothing here.
async fn route(
    State(gateway): State<Gateway>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
) -> Response {
    if request.method() != Method::POST {
        let message = format!(
            "There is no {} {} here",
            request.method(),
            request.uri().path()
        );
        return error(StatusCode::NOT_FOUND, "not_found", message);
    }
    request.extensions_mut().insert(PeerAddr(peer));
    match gateway.routed.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

async fn list(State(gateway): State<Gateway>) -> Json<Value> {
    Json(models(gateway.handle.registry().models()))
}

async fn healthz(State(gateway): State<Gateway>) -> Response {
    if gateway.handle.is_closed() {
        error(
            StatusCode::SERVICE_UNAVAILABLE,
            "shutting_down",
            "the service is shutting down".to_owned(),
        )
    } else {
        "ok\n".into_response()
    }
}

async fn metrics(State(gateway): State<Gateway>) -> Response {
    let text = metrics::page(&gateway.handle, &gateway.answers.by_status());
    ([("content-type", "text/plain; version=0.0.4")], text).into_response()
}

async fn state(State(gateway): State<Gateway>) -> Json<Snapshot> {
    Json(gateway.handle.snapshot())
}

/// OpenAI's list of models.
pub(crate) fn models<'a>(names: impl Iterator<Item = &'a str>) -> Value {
    let data: Vec<Value> = names
        .map(|id| json!({ "id": id, "object": "model", "created": 0, "owned_by": "tower-triage" }))
        .collect();
    json!({ "object": "list", "data": data })
}

/// An answer of the gateway's own, in OpenAI's shape of an error.
pub(crate) fn error(status: StatusCode, code: &'static str, message: String) -> Response {
    let rejection = Rejection::new(status, code, message);
    rejection.into_response(false).map(Body::from)
}
