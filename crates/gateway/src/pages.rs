//! The gateway's own pages: those for clients, and those for operators.

mod events;
mod live;
mod logs;
mod models;

use std::time::{Duration, Instant};

use axum::BoxError;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use tower_triage::endpoints::RouteError;
use tower_triage::openai::BodyMemory;
use tower_triage::rejection::{Rejection, ToRejection};

use crate::actions;
use crate::admin::{self, Feed, Overview};
use crate::answer_memory::AnswerMemory;
use crate::by_head::decoded;
use crate::durable::{self, Durable};
use crate::error_shape::reshape;
use crate::live::Live;
use crate::log::StatusCounts;
use crate::metrics;
use crate::own_answer::{self, InMemory};
use crate::paths::Api;
use crate::reload::Reloads;
use crate::service::Handle;
use crate::tenants::Tenant;
pub(crate) use models::{OLLAMA_DATE, list as list_models, ollama_show};

#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) handle: Handle,
    /// `None`: no request is stored.
    pub(crate) durable: Option<Durable>,
    pub(crate) statuses: StatusCounts,
    pub(crate) live: Live,
    pub(crate) reloads: Reloads,
    /// The stream of the operator's page.
    pub(crate) feed: Feed,
    /// `true` on an address that takes actions of operators.
    pub(crate) takes_actions: bool,
    /// Ends the responses that otherwise have no end.
    pub(crate) closing: CancellationToken,
    /// The memory of the answers that the gateway makes itself.
    pub(crate) memory: AnswerMemory,
}

impl Pages {
    /// Makes the pages of the main address.
    pub(crate) fn new(
        handle: Handle,
        durable: Option<Durable>,
        reloads: Reloads,
        live: Live,
        memory: AnswerMemory,
    ) -> Self {
        let overview = Overview {
            handle: handle.clone(),
            durable: durable.clone(),
            live: live.clone(),
            reloads: reloads.clone(),
            started: Instant::now(),
        };
        Self {
            handle,
            durable,
            statuses: StatusCounts::default(),
            live,
            reloads,
            feed: Feed::new(overview),
            takes_actions: false,
            closing: CancellationToken::new(),
            memory,
        }
    }

    /// Counts a page at `path` until its client has taken it, or refuses it while too much is in memory.
    pub(crate) fn counted(&self, path: &str, page: Response<Body>) -> Response<Body> {
        let in_memory = match durable::is_operators(path) {
            true => InMemory::Piece,
            false => InMemory::Whole,
        };
        own_answer::counted(&self.memory, path, page, in_memory)
    }

    /// The page for clients at `path`, as `tenant` may see it.
    pub(crate) fn client(&self, path: &str, tenant: Option<&Tenant>) -> Option<Response<Body>> {
        let names = || self.handle.names(tenant);
        Some(match path {
            "/v1/models" | "/models" => json(&models::list_with_states(names())),
            "/running" => json(&models::running(&self.handle.models_of(tenant))),
            "/api/tags" => json(&models::ollama_tags(names())),
            "/api/version" => json(&models::ollama_version()),
            "/healthz" | "/health" => self.healthz(),
            "/readyz" => self.readyz(),
            _ => {
                let id = model_of(path)?;
                let mut names = names().into_iter();
                match names.find(|model| model.name == id) {
                    Some(model) => json(&models::with_state(model)),
                    None => model_not_found(path, format!("Model '{id}' not found")),
                }
            }
        })
    }

    /// The page for operators that `head` asks for.
    pub(crate) async fn operator(&self, head: &Parts) -> Option<Response<Body>> {
        match head.uri.path() {
            "/metrics" => {
                let statuses = self.statuses.by_status();
                let text = metrics::page(&self.handle, self.durable.as_ref(), &statuses).await;
                Some(page("text/plain; version=0.0.4", text))
            }
            "/admin" => Some(admin::redirect()),
            "/admin/" => Some(admin::html()),
            "/admin/stream" => Some(self.feed.page(self.takes_actions, self.closing.clone())),
            "/admin/state" => Some(json(&self.handle.snapshot())),
            "/admin/live" => Some(live::page(&self.live)),
            "/admin/models" => Some(json(&models::Models::new(self.handle.models()))),
            "/admin/events" => Some(events::page(self.handle.events(), self.closing.clone())),
            path if path.starts_with("/admin/models/") => {
                logs::page(head, &self.handle, self.closing.clone())
            }
            _ => self.about_requests(head, Body::empty()).await,
        }
    }

    /// The answer to an operator who cancels a live request. `None` if `path` names none.
    pub(crate) fn cancel_live(&self, path: &str) -> Option<Response<Body>> {
        live::cancel(&self.live, path)
    }

    /// The answer to an operator who asks about stored requests, or for what is to be done with them.
    pub(crate) async fn about_requests<B>(&self, head: &Parts, body: B) -> Option<Response<Body>>
    where
        B: HttpBody<Error: Into<BoxError>>,
    {
        self.durable.as_ref()?.operator(head, body).await
    }

    /// Answers that the process serves requests.
    fn healthz(&self) -> Response<Body> {
        match self.handle.is_closed() {
            true => unavailable("shutting_down", "the service is shutting down"),
            false => page("text/plain; charset=utf-8", "ok\n"),
        }
    }

    /// Answers that a model can be reached, so that a load balancer may send requests.
    fn readyz(&self) -> Response<Body> {
        match self.handle.is_closed() || self.handle.has_model_in_service() {
            true => self.healthz(),
            false => unavailable(
                "not_ready",
                "no backend is healthy, and no model of [swap] can be started",
            ),
        }
    }
}

/// The paths of pages for clients.
const CLIENT_PAGES: [&str; 8] = [
    "/v1/models",
    "/models",
    "/running",
    "/healthz",
    "/health",
    "/readyz",
    "/api/tags",
    "/api/version",
];

/// Returns `true` if there is a page for clients at `path`.
pub(crate) fn is_clients(path: &str) -> bool {
    CLIENT_PAGES.contains(&path) || model_of(path).is_some()
}

/// Returns the id of the model whose page is at `path`. It may have slashes, and encoded ones.
fn model_of(path: &str) -> Option<String> {
    let id = path.strip_prefix("/v1").unwrap_or(path);
    let id = id.strip_prefix("/models/")?;
    decoded(id).filter(|id| !id.is_empty())
}

fn unavailable(code: &'static str, message: &str) -> Response<Body> {
    error(StatusCode::SERVICE_UNAVAILABLE, code, message.to_owned())
}

/// Whether only operators may see `path`, or act there: a request there is for no model, whatever its body says.
pub(crate) fn is_operators(path: &str) -> bool {
    path == "/metrics"
        || path == "/admin"
        || path.starts_with("/admin/")
        || actions::is_of_peers(path)
}

/// Returns `true` if `path` is that of the operator's page, or leads there.
pub(crate) fn is_html(path: &str) -> bool {
    matches!(path, "/admin" | "/admin/")
}

/// Returns `page` as the response to a request with `method`: for no cache, and for HEAD without its body, which hyper
/// leaves out over HTTP/1 only.
pub(crate) fn response_to(method: &Method, mut page: Response<Body>) -> Response<Body> {
    let headers = page.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if *method != Method::HEAD {
        return page;
    }
    let length = page.body().size_hint().exact();
    let mut head = page.map(|_| Body::empty());
    if let Some(length) = length {
        head.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    head
}

pub(crate) fn not_found(method: &Method, path: &str, hint: &str) -> Response<Body> {
    let message = format!("no page at {method} {path}: {hint}");
    error_at(path, StatusCode::NOT_FOUND, "not_found", message)
}

pub(crate) fn json(page_of: &impl Serialize) -> Response<Body> {
    let text = serde_json::to_vec(page_of).expect("strings and numbers serialize to JSON");
    page("application/json", text)
}

pub(crate) fn page(content_type: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut page = Response::new(Body::from(text.into()));
    let content_type = HeaderValue::from_static(content_type);
    page.headers_mut().insert(CONTENT_TYPE, content_type);
    page
}

/// An error response in the format of the API that `path` is of.
pub(crate) fn error_at(
    path: &str,
    status: StatusCode,
    code: &'static str,
    message: String,
) -> Response<Body> {
    in_shape_of(path, Rejection::new(status, code, message))
}

/// The error response of a model that is unknown, or not for this client.
pub(crate) fn model_not_found(path: &str, message: String) -> Response<Body> {
    let rejection = Rejection::new(StatusCode::NOT_FOUND, "model_not_found", message);
    in_shape_of(path, rejection.with_param("model"))
}

/// The error response to a request for whose body the memory of all bodies has no room.
pub(crate) fn body_memory_full(path: &str, handle: &Handle) -> Response<Body> {
    let memory = handle.router().body_memory();
    let limit = memory.map_or(0, BodyMemory::limit);
    let rejection = RouteError::BodyMemoryFull { limit }.to_rejection();
    in_shape_of(path, rejection.with_retry_after(Duration::from_secs(1)))
}

/// An error response in the format of the API that `path` is of.
pub(crate) fn in_shape_of(path: &str, rejection: Rejection) -> Response<Body> {
    let status = rejection.status();
    let error = rejection.into_response();
    let shape = |text: Bytes| reshape(Api::of(path), status, &text, None);
    error.map(|text| shape(text.clone()).map_or_else(|| Body::from(text), Body::from))
}

/// An error response in the format of OpenAI's API.
pub(crate) fn error(status: StatusCode, code: &'static str, message: String) -> Response<Body> {
    error_at("", status, code, message)
}
