//! The address of `[admin]`: the operator's pages.

mod access;
mod state;

use axum::body::Body;
use http::{Method, Request, Response};

use crate::config::Token;
use crate::pages::{self, Pages};
pub(crate) use state::{EndpointState, LevelState, QueueState, Snapshot};

/// The request handler of the admin address.
pub(crate) struct Admin {
    pub(crate) pages: Pages,
    pub(crate) token: Option<Token>,
}

impl Admin {
    pub(crate) async fn handle<B>(&self, request: Request<B>) -> Response<Body> {
        if let Some(refused) = access::refusal(&request, self.token.as_ref()) {
            return refused;
        }
        let (method, path) = (request.method(), request.uri().path());
        let found = match *method {
            Method::GET | Method::HEAD => self.pages.operator(path),
            _ => None,
        };
        found.unwrap_or_else(|| {
            pages::not_found(method, path, "use GET for /metrics and /admin/state")
        })
    }
}
