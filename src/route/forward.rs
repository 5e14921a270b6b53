//! A proxy that passes on `Connection`, buffers answers, or lets a backend work for a client that has
//! hung up, breaks things that neither side can see.
//!
//! [`Forward`] is the end of the line: it sends the request to the [`EndpointRef`] in its extensions, as
//! RFC 9110 wants a proxy to, and streams both ways.
//!
//! [`EndpointRef`]: super::EndpointRef

mod body;
mod failure;
mod future;
mod headers;
mod target;

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response, Version};
use http_body::Body;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;

pub use body::{BodyError, ForwardBody};
use failure::Failure;
pub use future::ForwardFuture;

use super::EndpointRef;

/// Sends each request to the endpoint that its extensions name, over HTTP/1.1.
///
/// - The endpoint's base path, the request's path and its query are joined. `Host` is the endpoint's.
/// - Hop-by-hop headers stop here, in both directions. Everything else passes, `Authorization` included,
///   unless the endpoint has [a header of its own](super::Endpoint::header) in its place. With a [`PeerAddr`] in its extensions, a request's `x-forwarded-for` names the peer.
/// - Bodies are streamed. Dropping the future or the response's body closes the connection to the
///   endpoint, which so learns that nobody listens any more.
/// - Connections are kept and used again. A request that a closing connection did not take is sent on
///   another one.
///
/// It never fails: an endpoint that cannot be reached (code `upstream_unreachable`) or breaks off before
/// it answers (`upstream_failed`) is a response with status 502 and an OpenAI-shaped JSON body.
///
/// TLS is not spoken yet: an `https://` endpoint is unreachable.
///
/// # Panics
///
/// Calling it outside a Tokio runtime panics.
pub struct Forward<B> {
    client: Client<HttpConnector, B>,
}

/// Long enough for any network that answers at all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Servers commonly close after 5 s (uvicorn, Node.js). Who closes first is not surprised by the other.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

impl<B> Forward<B>
where
    B: Body + Send,
    B::Data: Send,
{
    /// A client without connections yet. Clones share them.
    #[must_use]
    pub fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Self { client }
    }
}

impl<B> Service<Request<B>> for Forward<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<ForwardBody>;
    type Error = Infallible;
    type Future = ForwardFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ForwardFuture {
        let (parts, body) = request.into_parts();
        let Some(endpoint) = parts.extensions.get::<EndpointRef>() else {
            return ForwardFuture::failed(Failure::NoEndpoint);
        };
        if parts.method == Method::CONNECT {
            return ForwardFuture::failed(Failure::Tunnel);
        }
        let mut request = Request::new(body);
        *request.method_mut() = parts.method;
        *request.uri_mut() = match target::join(endpoint.url(), &parts.uri) {
            Ok(target) => target,
            Err(_) => return ForwardFuture::failed(Failure::Target),
        };
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = parts.headers;
        let length = request.body().size_hint().exact();
        let peer = parts.extensions.get().copied();
        headers::to_endpoint(request.headers_mut(), endpoint.headers(), length, peer);
        ForwardFuture::new(self.client.request(request), endpoint.clone())
    }
}

impl<B> Clone for Forward<B> {
    fn clone(&self) -> Self {
        let client = self.client.clone();
        Self { client }
    }
}

impl<B> Default for Forward<B>
where
    B: Body + Send,
    B::Data: Send,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<B> fmt::Debug for Forward<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").finish_non_exhaustive()
    }
}

/// Who sent a request, as a request extension: what [`Forward`] adds to `x-forwarded-for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);
