//! The address of `[admin]`: the operator's pages and actions.

mod feed;
mod history;
mod operate;
mod overview;
mod page;
mod patch;
mod state;

use std::net::SocketAddr;

use axum::BoxError;
use axum::body::{Body, HttpBody};
use http::{Method, Request, Response, StatusCode};

use crate::access;
use crate::actions;
use crate::config::{Origin, Token};
use crate::durable;
use crate::own_answer;
use crate::pages::{self, Pages, not_found, response_to};
use crate::paths;
pub(crate) use feed::Feed;
pub(crate) use overview::Overview;
pub(crate) use page::{html, redirect};
pub(crate) use state::{EndpointState, LevelState, QueueState, Snapshot};

const HINT: &str = "use GET for /admin/, /running, /metrics, /admin/state, /admin/stream, /admin/live, /admin/models, \
                    /admin/models/{name}/logs and /admin/events, or \
                    POST for /admin/endpoints/{name}/drain, /admin/endpoints/{name}/undrain, /admin/endpoints/{name}/eject, \
                    /admin/reload, /admin/requests/{id}/cancel, /admin/models/{name}/load, /admin/models/{name}/unload and \
                    /admin/unload; with [durable] also GET for \
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
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let page = self.page(request, peer).await;
        let answer = response_to(&method, page);
        match method {
            // A refusal would hide that the action was done.
            Method::POST => own_answer::given(&self.pages.memory, answer),
            _ => self.pages.counted(uri.path(), answer),
        }
    }

    async fn page<B>(&self, request: Request<B>, peer: SocketAddr) -> Response<Body>
    where
        B: HttpBody<Error: Into<BoxError>>,
    {
        // The page itself has no data, and a browser could not send the token for it.
        let is_html = request.method() != Method::POST && pages::is_html(request.uri().path());
        let refused = match &self.token {
            Some(_) if is_html => None,
            Some(token) => access::without_token(&request, token),
            None => access::from_elsewhere(&request, peer, &self.origins),
        };
        if let Some(refused) = refused.or_else(|| access::action_of_other_site(&request)) {
            return refused;
        }
        let (head, body) = request.into_parts();
        let (method, path) = (&head.method, head.uri.path());
        if *method == Method::POST
            && let Some(done) = operate::operate(&self.pages, path).await
        {
            return done;
        }
        let found = match *method {
            Method::POST if durable::is_operators(path) => {
                // Stored requests first, because clients choose the ids of the others.
                match self.pages.about_requests(&head, body).await {
                    Some(done) if is_done(done.status()) => Some(done),
                    found => self.pages.cancel_live(path).or(found),
                }
            }
            Method::POST if paths::is_at_or_below(path, "/admin/live") => {
                self.pages.cancel_live(path)
            }
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

/// Returns `true` if this status of an action says that there is such a stored request, and the store answers.
fn is_done(status: StatusCode) -> bool {
    status != StatusCode::NOT_FOUND && !status.is_server_error()
}
