//! The request handler of the main address: routes each request to a path of `[server] paths` by its model, and serves pages.

mod future;

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body::Body as HttpBody;
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_http::cors::CorsLayer;
use tower_triage::upstream::{OverTls, PeerAddr};

use crate::access;
use crate::actions;
use crate::answer_memory::AnswerMemory;
use crate::by_head::{self, Target};
use crate::config::{Origin, Paths};
use crate::durable::{Durable, FromBackend};
use crate::error_shape::{is_to_reshape, reshaped};
use crate::ollama;
use crate::own_answer::{self, InMemory};
use crate::pages::{self, Pages, is_clients, is_operators};
use crate::paths::{self, Api};
use crate::server::ClientBody;
use crate::service::Routed;
use crate::tenants::{Refused, Tenant, Tenants};
use future::GatewayFuture;

pub(crate) struct Gateway {
    pub(crate) routed: Routed,
    /// The paths whose requests go to backends.
    pub(crate) paths: Paths,
    pub(crate) tenants: Tenants,
    pub(crate) pages: Pages,
    /// `true` if the operator's pages have an address of their own, and are not here.
    pub(crate) has_admin_address: bool,
    pub(crate) origins: Vec<Origin>,
    /// `true` if the address speaks TLS.
    pub(crate) is_over_tls: bool,
    /// The CORS answers to pages of `origins`; `None` without any.
    pub(crate) cors: Option<CorsLayer>,
}

/// The future of a request that goes to a backend.
type RoutedFuture = <Routed as Service<Request<ClientBody>>>::Future;

impl Gateway {
    /// Answers a request unless it is that of another site.
    pub(crate) fn handle(
        self: &Arc<Self>,
        request: Request<ClientBody>,
        peer: SocketAddr,
    ) -> GatewayFuture<RoutedFuture> {
        let refused = access::with_unknown_transfer(&request)
            .or_else(|| access::with_method_of_proxies(&request))
            .or_else(|| access::from_other_site(&request, &self.origins));
        if let Some(refused) = refused {
            return GatewayFuture::page(ready(pages::response_to(request.method(), refused)));
        }
        let Some(cors) = &self.cors else {
            return self.answer(request, peer);
        };
        let gateway = Arc::clone(self);
        let answers = service_fn(move |request| {
            let answer = gateway.answer(request, peer);
            answer.map(|response| Ok::<_, Infallible>(response.map(Body::new)))
        });
        let answer = cors.layer(answers).oneshot(request);
        GatewayFuture::page(answer.map(|answer| match answer {
            Ok(response) => response,
            Err(never) => match never {},
        }))
    }

    /// Routes a POST by its body. Every other request is routed by its path or query, or asks for a page.
    fn answer(
        self: &Arc<Self>,
        mut request: Request<ClientBody>,
        peer: SocketAddr,
    ) -> GatewayFuture<RoutedFuture> {
        let tenant = match self.identify(&mut request) {
            Ok(tenant) => tenant,
            Err(refused) => {
                let refused = access::to_refused(request.uri().path(), refused);
                return GatewayFuture::page(ready(pages::response_to(request.method(), refused)));
            }
        };
        let (method, path) = (request.method(), request.uri().path());
        let may_act = tenant
            .as_ref()
            .is_none_or(|tenant| tenant.may_use_all_models());
        if actions::is_action(method, path) && self.clients_may(path) && may_act {
            return GatewayFuture::page(Arc::clone(self).act(request));
        }
        if self.pages.handle.swap_config().is_some() && ollama::may_be(&request) {
            return GatewayFuture::page(Arc::clone(self).ollama(request, peer, tenant));
        }
        self.serve(request, peer, tenant)
    }

    /// Answers a request of a client of Ollama that only asks about a model, or serves it.
    async fn ollama(
        self: Arc<Self>,
        mut request: Request<ClientBody>,
        peer: SocketAddr,
        tenant: Option<Arc<Tenant>>,
    ) -> Response<Body> {
        let read = request.body_mut().read_ahead();
        // A body that does not come, or breaks off, is left to the reader of all others.
        if let Ok(Ok(body)) = timeout(ollama::BODY_TIMEOUT, read).await {
            let path = request.uri().path();
            let own = ollama::answer(&self.pages.handle, path, &body, tenant.as_deref());
            if let Some(own) = own {
                return self
                    .pages
                    .counted(path, pages::response_to(request.method(), own));
            }
        }
        self.serve(request, peer, tenant).await.map(Body::new)
    }

    /// Sends a request to the backend that serves it, or answers it with a page.
    fn serve(
        self: &Arc<Self>,
        mut request: Request<ClientBody>,
        peer: SocketAddr,
        tenant: Option<Arc<Tenant>>,
    ) -> GatewayFuture<RoutedFuture> {
        let path = request.uri().path();
        let api = Api::of(path);
        let durable = self.pages.durable.as_ref();
        let is_stored_page = durable.is_some_and(|durable| durable.has_page(path));
        let is_read = is_stored_page || self.is_read(&request, tenant.as_deref());
        if !is_read {
            match self.aim(&mut request, tenant.as_deref()) {
                Some(Target::Backend) => {}
                Some(Target::Answer(answer)) => {
                    return GatewayFuture::page(ready(pages::response_to(
                        request.method(),
                        answer,
                    )));
                }
                None => return GatewayFuture::page(Arc::clone(self).page(request, peer, tenant)),
            }
        }
        if !is_read && !request.body_mut().may_wait_unread() {
            let refused = pages::body_memory_full(request.uri().path(), &self.pages.handle);
            return GatewayFuture::page(ready(refused));
        }
        request.extensions_mut().insert(PeerAddr(peer));
        if self.is_over_tls {
            request.extensions_mut().insert(OverTls);
        }
        let is_stored = |durable: &&Durable| is_stored_page || is_read && durable.takes(&request);
        if let Some(durable) = durable.filter(is_stored) {
            let memory = self.pages.memory.clone();
            return GatewayFuture::page(stored(durable.clone(), request, api, memory));
        }
        let option = durable.and_then(|durable| durable.option_of(request.headers()));
        if let Some(option) = option {
            let refused = cannot_store(request.uri().path(), option);
            return GatewayFuture::page(ready(pages::response_to(request.method(), refused)));
        }
        self.route(request, api)
    }

    /// Calls the router at once, so that its metrics have each request in the log, even one whose client is gone before its
    /// future is polled.
    fn route(&self, request: Request<ClientBody>, api: Api) -> GatewayFuture<RoutedFuture> {
        let mut routed = self.routed.clone();
        match routed.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => GatewayFuture::Routed {
                response: routed.call(request),
                api,
            },
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => GatewayFuture::page(shaped(routed.oneshot(request), api)),
        }
    }

    /// Returns `true` if the body of a request names its model, so that it has to be read. At paths that are not known, a body
    /// that is empty or no JSON is left to the default backend.
    fn is_read(&self, request: &Request<ClientBody>, tenant: Option<&Tenant>) -> bool {
        let (method, uri) = (request.method(), request.uri());
        let path = uri.path();
        *method == Method::POST
            && !is_operators(path)
            && !path.starts_with(paths::UPSTREAM)
            && self.paths.allows(path)
            && (paths::is_known(path)
                || by_head::model_in_query(uri).is_none()
                    && (by_head::may_have_json(request)
                        || !by_head::may_use_default(&self.pages.handle, tenant)))
    }

    /// Finds where a request goes whose body is not read. `None` if it asks for a page.
    fn aim(&self, request: &mut Request<ClientBody>, tenant: Option<&Tenant>) -> Option<Target> {
        let (method, path) = (request.method(), request.uri().path());
        let is_page = matches!(*method, Method::GET | Method::HEAD) && is_clients(path);
        if is_page || is_operators(path) || !self.paths.allows_unread(path) {
            return None;
        }
        by_head::aim(request, &self.pages.handle, tenant)
    }

    /// Checks the path of a request and the key of its client, and finds the tenant that it belongs to.
    fn identify(&self, request: &mut Request<ClientBody>) -> Result<Option<Arc<Tenant>>, Refused> {
        access::drop_lookalikes(request.headers_mut());
        paths::without_last_slash(request.uri_mut());
        let (method, path) = (request.method(), request.uri().path());
        if !paths::is_valid(method, path) {
            return Err(Refused::InvalidPath);
        }
        // Pages for operators have checks of their own.
        let needs_no_key =
            paths::is_public(method, path) || is_operators(path) && !self.clients_may(path);
        match needs_no_key {
            true => Ok(None),
            false => self.tenants.identify(request),
        }
    }

    /// Returns `true` if clients may ask for the action at `path`, if it is one.
    fn clients_may(&self, path: &str) -> bool {
        actions::is_of_peers(path) && self.pages.handle.clients_may_unload()
    }

    async fn act(self: Arc<Self>, request: Request<ClientBody>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let begun = actions::begin(&self.pages.handle, &head, body).await;
        let (method, path) = (&head.method, head.uri.path());
        let begun =
            begun.unwrap_or_else(|| pages::not_found(method, path, self.hint(method, path)));
        pages::response_to(method, begun)
    }

    async fn page(
        self: Arc<Self>,
        request: Request<ClientBody>,
        peer: SocketAddr,
        tenant: Option<Arc<Tenant>>,
    ) -> Response<Body> {
        let is_operators = is_operators(request.uri().path());
        let refused = match is_operators {
            true => access::from_elsewhere(&request, peer, &self.origins),
            false => None,
        };
        let (head, _) = request.into_parts();
        let (method, path) = (&head.method, head.uri.path());
        let found = match *method {
            Method::GET | Method::HEAD if !is_operators => {
                self.pages.client(path, tenant.as_deref())
            }
            Method::GET | Method::HEAD if !self.has_admin_address => match refused {
                Some(refused) => Some(refused),
                None => self.pages.operator(&head).await,
            },
            _ => None,
        };
        let page = found.unwrap_or_else(|| pages::not_found(method, path, self.hint(method, path)));
        self.pages.counted(path, pages::response_to(method, page))
    }

    fn hint(&self, method: &Method, path: &str) -> &'static str {
        match (is_operators(path), self.has_admin_address) {
            (true, true) => "/metrics and /admin/ are on the address of [admin]",
            (true, false) if method == Method::POST => {
                "actions of operators are on an address of its own: give the configuration an [admin] section"
            }
            (false, _) if method == Method::POST => {
                "requests go to backends at the paths of the APIs that the gateway knows, or at those that `paths` of \
                 [server] allows; others below /v1 with `?model=`, or if [routing] has a `default_backend`"
            }
            (false, true) => {
                "use POST for models, or GET for /v1/models, /running and /healthz; other paths below /v1 go to backends \
                 with `?model=`, or if [routing] has a `default_backend`"
            }
            (_, false) => {
                "use POST for models, or GET for /v1/models, /running, /healthz, /metrics, /admin/, /admin/state, \
                 /admin/models, /admin/models/{name}/logs and /admin/events; other paths below /v1 go to backends with \
                 `?model=`, or if [routing] has a `default_backend`"
            }
        }
    }
}

/// Refuses a request that asks to be stored and can't be, because its body names no model that the gateway reads.
fn cannot_store(path: &str, option: &HeaderName) -> Response<Body> {
    let message = format!(
        "`{option}` is for requests that are stored, which forms and those to {path} are not: send it without"
    );
    pages::error_at(path, StatusCode::BAD_REQUEST, "unsupported_header", message)
}

/// Answers a request that may be stored. An answer that no backend gives counts against `memory`. It is refused only if its
/// client gets it by asking again: an answer of a new request would be lost, and the repetition would run it again.
async fn stored(
    durable: Durable,
    request: Request<ClientBody>,
    api: Api,
    memory: AnswerMemory,
) -> Response<Body> {
    let path = request.uri().clone();
    let may_repeat = matches!(*request.method(), Method::GET | Method::HEAD)
        || request.headers().contains_key("idempotency-key");
    let answer = shaped(durable.answer(request).map(Ok), api).await;
    match answer.extensions().get::<FromBackend>() {
        Some(FromBackend) => answer,
        None if !may_repeat => own_answer::given(&memory, answer),
        None => own_answer::counted(&memory, path.path(), answer, InMemory::Piece),
    }
}

/// Returns a response, with an error of the gateway in the shape that its client expects.
async fn shaped<B>(
    response: impl Future<Output = Result<Response<B>, Infallible>>,
    api: Api,
) -> Response<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    match response.await {
        Ok(error) if is_to_reshape(&error, api) => reshaped(error, api).await,
        Ok(response) => response.map(Body::new),
        Err(never) => match never {},
    }
}
