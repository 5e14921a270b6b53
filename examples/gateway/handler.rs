//! The request handler of the main address: routes every POST by its model, and serves pages.

use std::net::SocketAddr;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::Either;
use hyper::body::Incoming;
use tower::ServiceExt;
use tower_triage::upstream::PeerAddr;

use crate::pages::{self, Pages, error, is_operators};
use crate::service::Routed;

pub(crate) struct Gateway {
    pub(crate) routed: Routed,
    pub(crate) pages: Pages,
    /// Whether the operator's pages have an address of their own, and are not here.
    pub(crate) has_admin_address: bool,
}

impl Gateway {
    /// Routes a POST by its body, whatever its path; every other request asks for a page.
    pub(crate) async fn handle(
        &self,
        mut request: Request<Incoming>,
        peer: SocketAddr,
    ) -> Response<impl HttpBody<Data = Bytes, Error = BoxError> + use<>> {
        if request.method() != Method::POST || is_operators(request.uri().path()) {
            let page = self.page(request.method(), request.uri().path(), peer);
            return page.map(Either::Right);
        }
        request.extensions_mut().insert(PeerAddr(peer));
        match self.routed.clone().oneshot(request).await {
            Ok(response) => response.map(Either::Left),
            Err(never) => match never {},
        }
    }

    fn page(&self, method: &Method, path: &str, peer: SocketAddr) -> Response<Body> {
        let found = if !matches!(*method, Method::GET | Method::HEAD) {
            None
        } else if !is_operators(path) {
            self.pages.client(path)
        } else if self.has_admin_address {
            None
        } else if peer.ip().to_canonical().is_loopback() {
            self.pages.operator(path)
        } else {
            Some(forbidden())
        };
        let page = found.unwrap_or_else(|| pages::not_found(method, path, self.hint(method, path)));
        pages::response_to(method, page)
    }

    fn hint(&self, method: &Method, path: &str) -> &'static str {
        match (is_operators(path), self.has_admin_address) {
            (true, true) => "/metrics and /admin/ are on the address of [admin]",
            (true, false) if method == Method::POST => {
                "models are loaded and unloaded on an address of its own: give the configuration an [admin] section"
            }
            (false, true) => "use POST for models, or GET for /v1/models, /running and /healthz",
            (_, false) => {
                "use POST for models, or GET for /v1/models, /running, /healthz, /metrics, /admin/state, \
                 /admin/models and /admin/events"
            }
        }
    }
}

fn forbidden() -> Response<Body> {
    let message = "only clients on the gateway's own machine get this page: to serve it to others, give /metrics and \
                   /admin/ an address of their own with [admin]";
    error(StatusCode::FORBIDDEN, "forbidden", message.to_owned())
}
