//! The address of `[admin]`: the operator's pages and actions.

mod access;
mod actions;
mod state;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use http::{Method, Request, Response};

use crate::config::Token;
use crate::pages::{Pages, not_found, response_to};
pub(crate) use state::{EndpointState, LevelState, QueueState, Snapshot};

const HINT: &str = "use GET for /running, /metrics, /admin/state, /admin/models and /admin/events, or POST for \
                    /admin/models/{name}/load, /admin/models/{name}/unload and /admin/unload";

/// The request handler of the admin address.
pub(crate) struct Admin {
    pub(crate) pages: Pages,
    pub(crate) token: Option<Token>,
}

impl Admin {
    pub(crate) async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Error: Into<BoxError>>,
    {
        let method = request.method().clone();
        let page = self.page(request).await;
        response_to(&method, page)
    }

    async fn page<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Error: Into<BoxError>>,
    {
        if let Some(refused) = access::refusal(&request, self.token.as_ref()) {
            return refused;
        }
        let (head, body) = request.into_parts();
        let (method, path) = (head.method, head.uri.path());
        let found = match method {
            Method::GET | Method::HEAD if path == "/running" => self.pages.client(path),
            Method::GET | Method::HEAD => self.pages.operator(path),
            Method::POST => actions::begin(&self.pages.handle, &head.uri, body).await,
            _ => None,
        };
        found.unwrap_or_else(|| not_found(&method, path, HINT))
    }
}
