//! The address of `[admin]`: the operator's pages and actions.

mod state;

use std::net::SocketAddr;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use http::{Method, Request, Response};

use crate::access;
use crate::actions;
use crate::config::{Origin, Token};
use crate::durable;
use crate::pages::{Pages, not_found, response_to};
pub(crate) use state::{EndpointState, LevelState, QueueState, Snapshot};

const HINT: &str = "use GET for /running, /metrics, /admin/state, /admin/live, /admin/models and /admin/events, or POST \
                    for /admin/models/{name}/load, /admin/models/{name}/unload, /admin/unload and \
                    /admin/requests/{id}/cancel; with [durable] also GET for \
                    /admin/requests, /admin/requests/{id} and /admin/durable, or POST for /admin/requests/{id}/cancel, \
                    /admin/requests/{id}/retry, /admin/durable/pause and /admin/durable/resume";

/// The request handler of the admin address.
pub(crate) struct Admin {
    pub(crate) pages: Pages,
    pub(crate) token: Option<Token>,
    pub(crate) origins: Vec<Origin>,
}

impl Admin {
    pub(crate) async fn handle<B>(&self, request: Request<B>, peer: SocketAddr) -> Response<Body>
    where
        B: HttpBody<Error: Into<BoxError>>,
    {
        let method = request.method().clone();
        let page = self.page(request, peer).await;
        response_to(&method, page)
    }

    async fn page<B>(&self, request: Request<B>, peer: SocketAddr) -> Response<Body>
    where
        B: HttpBody<Error: Into<BoxError>>,
    {
        let refused = match &self.token {
            Some(token) => access::without_token(&request, token),
            None => access::from_elsewhere(&request, peer, &self.origins),
        };
        if let Some(refused) = refused.or_else(|| access::action_of_other_site(&request)) {
            return refused;
        }
        let (head, body) = request.into_parts();
        let (method, path) = (&head.method, head.uri.path());
        let found = match *method {
            Method::POST if durable::is_operators(path) => match self.pages.cancel_live(path) {
                Some(cancelled) => Some(cancelled),
                None => self.pages.about_requests(&head, body).await,
            },
            _ if actions::is_action(method, path) => {
                actions::begin(&self.pages.handle, &head, body).await
            }
            Method::GET | Method::HEAD if path == "/running" => self.pages.client(path, None),
            Method::GET | Method::HEAD => self.pages.operator(&head).await,
            _ => None,
        };
        found.unwrap_or_else(|| not_found(method, path, HINT))
    }
}
