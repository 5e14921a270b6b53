//! The HTTP client of a router. It sends a request to the endpoint of the [`Decision`] in the request's extensions, by
//! the rules of RFC 9110 for proxies, and streams both bodies.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, Response, Uri};
use http_body::Body;
use tokio::time::Instant;
use tower_service::Service;

use super::body::ForwardBody;
use super::connect::Connector;
use super::exchange::{Exchange, Way};
use super::failure::Failure;
use super::future::ForwardFuture;
use super::headers::{self, Client};
use super::health::HealthChecks;
use super::lookups::Lookups;
use super::pools::{pool_of, shared_of};
use super::redirect::{Mount, PathPrefix};
use super::target::origin_form;
#[cfg(feature = "tls")]
use super::tls::{Tls, TlsError};
use super::upgrade;
use super::upload::{KEEP_LIMIT, Upload};
use crate::endpoints::Decision;
use crate::gate::ClientStall;
use crate::route::{AtMostOnce, RouteHandle};

/// A service that sends each request over HTTP/1.1 or [HTTP/2](#http2) to the endpoint that its extensions name.
///
/// - The target is the endpoint's base path, then the request's path and query. `Host` is the endpoint's, as is `:authority`
///   over HTTP/2.
/// - Hop-by-hop headers stop here, in both directions. All other headers pass, including `Authorization`, unless the
///   endpoint has [a header of its own](crate::endpoints::Endpoint::header) in place of the client's. With a
///   [`PeerAddr`] in the request's extensions, its `x-forwarded-for` and `forwarded` name the peer, and `x-forwarded-host` and
///   `x-forwarded-proto` the host and the scheme that the client asked for, unless the request has them already.
/// - `Location`, `Content-Location` and `Refresh` of an answer with the endpoint's own address get the path at the router,
///   below the [`PathPrefix`] of the request. `TRACE` and `CONNECT` are answered with 405.
/// - Trailers of an answer pass. A client of HTTP/1.1 gets them if it wants them and the endpoint announces them.
///   Trailers of a request pass if they are announced, and if its body is streamed by the router and of unknown length, but
///   not those that servers could take for headers which decide something.
///   Over HTTP/2 they need no announcement. The headers `te` and `trailer` pass wherever the trailers do.
/// - The `cookie` lines of an HTTP/2 request are joined into one.
/// - Bodies are streamed. Dropping the future or the response's body closes the connection to the endpoint, so that the
///   endpoint can stop working on the response. So does a [recall](crate::Discipline::Fair) of the slot of a client that does
///   not read.
/// - The head of an answer waits for the first piece of its body, so an endpoint that breaks off before it is a failure
///   with a status of its own. The head of an error, of a stream of events, of gRPC, or of an answer of unknown length
///   whose request is still being sent, waits for 100 ms at most, because its first piece may come much later.
/// - The head of a stream of events waits for its first event, if that begins in time. If the event is an error, or the body of
///   a 200 is one, the response has an [`ErrorInBody`](crate::endpoints::ErrorInBody) in its extensions. So has a 429 or 503
///   whose body says that the endpoint is full. A stream that answers a `POST` without an event counts as broken off.
/// - If an answer comes before the request's body is sent, the answer is passed on while the rest of the body goes out.
///   If a part of the body is still unsent when the answer is over, the connection is closed instead.
/// - Connections are kept and used again. An idle one is closed after 3 s to 4 s, and each one at an
///   [age](Self::max_connection_age) of 4 to 5 min. Each endpoint keeps its own, so they are closed when the endpoint leaves the
///   router or is configured differently. While they are used, the endpoint's name is looked up every 10 s, and those to an
///   address that it does not have any more take no further request.
/// - An answer may follow interim responses (1xx), which end here. More than 1 MiB of them and of the head is a failure, which ends
///   the connection, because an endpoint that sends them without an end would keep a thread from everything else.
/// - If a kept connection turns out to be closed, its request is sent again once, on a new connection, unless a byte of
///   an answer has come or its streamed body was cut off. A request with a body of more than 1 MiB, and a request that is
///   sent [`AtMostOnce`], goes over a new connection from the start.
/// - A websocket (`GET` with `Upgrade: websocket`) passes if the server in front allows upgrades, as hyper's
///   `serve_connection_with_upgrades` does. The body of the endpoint's 101 then carries the websocket while it is polled, so
///   that the request holds its slot as long. Poll that body in a task of its own, and answer without it:
///
///   ```
///   # use bytes::Bytes;
///   # use http::{Response, StatusCode};
///   # use http_body::Body;
///   # use http_body_util::{BodyExt, Either, Empty};
///   # fn answer<B: Body + Send + 'static>(response: Response<B>) -> Response<Either<B, Empty<Bytes>>>
///   # where B::Data: Send, B::Error: Send {
///   if response.status() == StatusCode::SWITCHING_PROTOCOLS {
///       let (head, body) = response.into_parts();
///       tokio::spawn(body.collect()); // until the websocket is closed
///       return Response::from_parts(head, Either::Right(Empty::new()));
///   }
///   # response.map(Either::Left)
///   # }
///   ```
///
/// - An endpoint's name is looked up once for all connections that are made at the same time, and its addresses are
///   used for 5 s afterwards.
/// - An `https://` endpoint needs the feature `tls` and a certificate for its host, which may be a name or an IP
///   address. The certificate must come from one of the system's roots, or from those in `root_certificates`. The
///   system's roots are read once per process, when they are first needed. On a system without roots, `https://`
///   endpoints are unreachable and all others work.
///
/// # HTTP/2
///
/// An endpoint with [`http2`](crate::endpoints::Endpoint::http2) gets all requests over one connection, as long as its limit of
/// streams allows it, so gRPC passes. What
/// is said above of a connection that is closed then holds for the request's stream, which is reset.
///
/// - The first request opens the connection, and requests that come meanwhile wait for it together. An idle connection is
///   closed after 45 s to 60 s. On Linux, a connection to a machine that is gone is closed within about two minutes.
/// - A connection over which nothing came during all of a request that [timed out](Self::first_byte_timeout), or that was given
///   up after 10 s or more, gets no further request. Those that it has go on.
/// - Requests above the endpoint's limit of streams go over further connections, so no request that has a slot waits for a
///   stream.
/// - A request that the endpoint has not seen, by a `GOAWAY` or a `REFUSED_STREAM`, is sent again up to three times, even if
///   it is sent [`AtMostOnce`]. A `GOAWAY` with an error is an exception, because the request may be its cause. Without such a
///   promise, the rule for kept connections applies, except to a request that is sent `AtMostOnce`.
/// - A client that does not read its answer holds up to 1 MiB of it here, and delays no other request.
/// - Websockets stay with HTTP/1.1.
///
/// # Failures
///
/// This service never fails. If an endpoint gives no answer, the response has an OpenAI-shaped JSON body. It also has a
/// [`NoResponse`](crate::endpoints::NoResponse) in its extensions, unless the request was refused before it was sent:
///
/// | event | status | code | extension |
/// |---|---|---|---|
/// | the connection failed: refused, unknown name, no trust | 502 | `upstream_unreachable` | `Unreachable` |
/// | the endpoint is `https://`, without the feature `tls` or without roots | 502 | `upstream_unreachable` | `Unreachable` |
/// | the endpoint does not agree to HTTP/2 by ALPN | 502 | `upstream_unreachable` | `Unreachable` |
/// | the gateway has too many files open | 502 | `upstream_unreachable` | `OutOfFiles` |
/// | no connection in [time](Self::connect_timeout) | 504 | `upstream_connect_timeout` | `ConnectTimeout` |
/// | the endpoint broke off before the first piece of its answer | 502 | `upstream_failed` | `Reset` |
/// | the endpoint did not answer in [time](Self::first_byte_timeout) | 504 | `upstream_timeout` | `Timeout` |
/// | the body of its answer did not begin in [time](Self::idle_timeout) | 504 | `upstream_timeout` | `Timeout` |
/// | the endpoint closed before it had read the request, or refused it | 502 | `upstream_failed` | `BodyNotSent` |
/// | the request's body broke off, or is shorter than announced | 400 | `request_body_failed` | `BodyNotSent` |
/// | a layer in front has ended the request's body, as too large or as too late | 413, 408 | `body_too_large`, `request_body_timeout` | `BodyNotSent` |
/// | a model that was started on demand has ended by itself | 502 | `model_crashed` | `Unreachable`, `Reset` |
/// | the operator stopped such a model | 503 | `model_unloaded` | `Reset` |
/// | the request's path cannot be joined to the endpoint's | 400 | `invalid_path` | none |
/// | the method is `CONNECT` | 405 | `unsupported_method` | none |
/// | there is no [`Decision`] in the request's extensions | 500 | `no_endpoint_chosen` | none |
///
/// If the connection to an endpoint that was started on demand breaks, the endpoint may still be running. The answer
/// waits until that is known, which takes a check of the endpoint, or 0.1 s for an endpoint without a check.
///
/// # Cancel safety
///
/// The request may be on its way as soon as `call` returns. Dropping the future while it connects ends the connection attempt, with two exceptions. If another connection has
/// served the request meanwhile, the attempt goes on until it succeeds or times out, and its connection is kept for
/// later. An attempt over HTTP/2 always goes on.
///
/// # Panics
///
/// Panics if it is called outside a Tokio runtime.
///
/// # Examples
///
/// A gateway in front of a local backend with health checks, and of a backend in the cloud that needs an API key:
///
/// ```no_run
/// use std::time::Duration;
///
/// use bytes::Bytes;
/// use http::header::{AUTHORIZATION, HeaderValue};
/// use http::{Request, Uri};
/// use http_body_util::Full;
/// use tower::{ServiceBuilder, ServiceExt};
/// use tower_triage::RouteLayer;
/// use tower_triage::endpoints::{Endpoint, HealthCheck, Model, Registry};
/// use tower_triage::upstream::Forward;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let local = Endpoint::new("local", Uri::from_static("http://127.0.0.1:9001"))
///     .health(HealthCheck::default())
///     .model(Model::new("llama3:8b"));
/// let cloud = Endpoint::new("cloud", Uri::from_static("https://api.example.com"))
///     .header(AUTHORIZATION, HeaderValue::from_static("Bearer sk-..."))
///     .model(Model::new("llama3:70b"));
///
/// let layer = RouteLayer::builder(Registry::new(vec![local, cloud])?).build();
/// let forward = Forward::new()
///     .connect_timeout(Duration::from_secs(2))
///     .first_byte_timeout(Duration::from_secs(300));
/// let checks = forward.checks(&layer.handle()); // until it is dropped
/// let gateway = ServiceBuilder::new().layer(layer).service(forward);
/// checks.first_results().await;
///
/// let request = Request::post("/v1/chat/completions")
///     .body(Full::new(Bytes::from(r#"{"model": "llama3:70b", "messages": []}"#)))?;
/// let response = gateway.oneshot(request).await?;
/// println!("{}", response.status());
/// # Ok(())
/// # }
/// ```
pub struct Forward<B> {
    /// The connector, which clones of the service share. Each endpoint has a pool of its connections.
    connector: Arc<Connector>,
    timeouts: Timeouts,
    body: PhantomData<fn(B)>,
}

/// The times that an endpoint may take for its answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// The time until the head of the answer is there.
    pub(super) first_byte: Duration,
    /// The time between two pieces of its body.
    pub(super) idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            // An answer that is not streamed is generated as a whole before its first byte is sent, which takes a model
            // minutes.
            first_byte: Duration::from_secs(600),
            // A model may think for minutes between two pieces of a stream.
            idle: Duration::from_secs(300),
        }
    }
}

impl<B> Forward<B>
where
    B: Body + Send,
    B::Data: Send,
{
    /// Creates a client without connections. Clones of the client share its connections.
    #[must_use]
    pub fn new() -> Self {
        Self::with(Connector::new(Lookups::default()), Timeouts::default())
    }

    /// Sets the time that connecting to an endpoint may take, including DNS lookup and TLS. The default is 10 s.
    ///
    /// The returned client starts without connections, and it does not share any with clones made before.
    #[must_use]
    pub fn connect_timeout(self, limit: Duration) -> Self {
        let connector = Connector::clone(&self.connector).within(limit);
        Self::with(connector, self.timeouts)
    }

    /// Sets the age at which a connection takes no further request. The default is 5 min. Each connection has an age of its own,
    /// up to a fifth shorter, so that they do not all end together. A request that runs is not cut off.
    ///
    /// Without such a limit, connections that are always in use would go on to an old address after the endpoint's name has
    /// moved, or to the old half of a service behind a load balancer.
    ///
    /// The returned client starts without connections, and it does not share any with clones made before.
    #[must_use]
    pub fn max_connection_age(self, limit: Duration) -> Self {
        let connector = Connector::clone(&self.connector).aging(limit);
        Self::with(connector, self.timeouts)
    }

    /// Sets the time that an endpoint may take until the head of its answer is there. The default is 600 s.
    ///
    /// The time counts from `call`, and starts again with each piece of the request's body that the endpoint takes. The
    /// clock is paused while the client has yet to send the next piece. The time for the body of the answer is unlimited,
    /// as long as it is not [silent](Self::idle_timeout) for too long.
    ///
    /// A client that never finishes sending keeps its request and the endpoint's slot. Limit that in the server in
    /// front, for example with `tower-http`'s `RequestBodyTimeoutLayer`.
    #[must_use]
    pub fn first_byte_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.first_byte = limit;
        self
    }

    /// Sets the time that may pass between two pieces of an answer's body. The default is 300 s.
    ///
    /// The clock runs only while the reader of the body awaits the next piece, so a client that reads slowly does not end
    /// its answer. After that time the body ends with a [`BodyError`](super::BodyError), and the connection to the endpoint
    /// is closed. If the answer's head is still awaiting the first piece, the response is a 504 instead. A websocket ends
    /// when neither side has sent anything for that time.
    #[must_use]
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.timeouts.idle = limit;
        self
    }

    /// Trusts `https://` endpoints with a certificate that is signed by one in `pem`, instead of by the system's roots.
    /// PEM sections that are not certificates are ignored.
    ///
    /// The self-signed certificate of an endpoint can be listed here, unless it is a CA certificate, which
    /// `openssl req -x509` makes without `-addext basicConstraints=CA:FALSE`.
    ///
    /// The returned client starts without connections, and it does not share any with clones made before.
    ///
    /// # Errors
    ///
    /// If `pem` lacks a certificate, or if a certificate in it cannot be read.
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: &[u8]) -> Result<Self, TlsError> {
        let connector = Connector::clone(&self.connector).trusting(Tls::only(pem)?);
        Ok(Self::with(connector, self.timeouts))
    }

    /// Starts to check the endpoints of a router that have a [`HealthCheck`](crate::endpoints::HealthCheck). It also
    /// starts to read the load of endpoints that have [`EngineMetrics`](crate::endpoints::EngineMetrics). Both go on
    /// until the returned value is dropped.
    ///
    /// Checks connect as requests do, within [`connect_timeout`](Self::connect_timeout) and with the same trust.
    /// Changes are [reported](crate::route::RouteHandle::set_healthy) to the router.
    ///
    /// # Panics
    ///
    /// Panics if it is called outside a Tokio runtime.
    pub fn checks(&self, router: &RouteHandle) -> HealthChecks {
        HealthChecks::start(Connector::clone(&self.connector), router.clone())
    }

    pub(super) fn with(connector: Connector, timeouts: Timeouts) -> Self {
        Self {
            connector: Arc::new(connector),
            timeouts,
            body: PhantomData,
        }
    }
}

impl<B> Service<Request<B>> for Forward<B>
where
    B: Body + Send + 'static,
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
        let (mut parts, body) = request.into_parts();
        let stall: Option<Arc<ClientStall>> = parts.extensions.remove();
        let upgrade = upgrade::take_requested(&mut parts, stall.as_ref());
        let Some(Decision { endpoint, .. }) = parts.extensions.get() else {
            return ForwardFuture::failed(Failure::NoEndpoint);
        };
        // The answer to TRACE has all headers of the request, and so the keys that only the endpoint may know.
        if matches!(parts.method, Method::CONNECT | Method::TRACE) {
            return ForwardFuture::failed(Failure::Method(parts.method));
        }
        let host = || asked_host(&parts.uri, &parts.headers);
        let client = parts.extensions.get().map(|peer| Client {
            peer: *peer,
            host: host(),
            is_over_tls: parts.extensions.get::<OverTls>().is_some(),
        });
        let prefix = parts.extensions.get::<PathPrefix>();
        let mount = prefix.map(|PathPrefix(prefix)| {
            Box::new(Mount {
                prefix: prefix.trim_end_matches('/').to_owned(),
                host: host(),
            })
        });
        let Ok(target) = origin_form(endpoint.url(), parts.uri) else {
            return ForwardFuture::failed(Failure::Target);
        };
        let size = body.size_hint();
        let mut headers = parts.headers;
        headers::to_endpoint(
            &mut headers,
            parts.version,
            headers::own(endpoint),
            size.exact(),
            client.as_ref(),
        );
        let announced = size.exact().or_else(|| content_length(&headers));
        let is_http2 = endpoint.config().http2 && upgrade.is_none();
        let is_unannounced = announced.is_none() && !headers.contains_key(CONTENT_LENGTH);
        if is_unannounced && !is_http2 && !body.is_end_stream() {
            // Without this header, hyper would leave such a body out of a GET over HTTP/1.1.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if upgrade.is_some() {
            upgrade::set_headers(&mut headers);
        }
        let may_repeat = parts.extensions.get::<AtMostOnce>().is_none();
        let is_large = size.lower() > KEEP_LIMIT as u64;
        let may_upgrade = upgrade.is_some();
        let way = match is_http2 {
            true => Way::Http2 {
                shared: shared_of(endpoint, &self.connector),
                may_repeat,
                is_late: Arc::default(),
            },
            false if is_large || may_upgrade || !may_repeat => Way::New { may_upgrade },
            false => Way::Kept(pool_of(endpoint, &self.connector)),
        };
        let exchange = Exchange {
            endpoint: endpoint.clone(),
            connector: Arc::clone(&self.connector),
            way,
        };
        let now = Instant::now();
        let upload = match size.exact() {
            Some(_) => Upload::new(body, announced, now),
            None => Upload::new(body, announced, now).without_trailers_of(&headers),
        };
        let mut request = Request::new(upload);
        *request.method_mut() = parts.method;
        *request.uri_mut() = target;
        *request.headers_mut() = headers;
        let client = (upgrade, stall);
        ForwardFuture::new(exchange, request, now, self.timeouts, client, mount)
    }
}

/// Returns the host that a client asked for, which is in the target of a request over HTTP/2.
fn asked_host(uri: &Uri, headers: &HeaderMap) -> Option<HeaderValue> {
    let authority = uri.authority();
    let of_target = authority.and_then(|it| HeaderValue::try_from(it.as_str()).ok());
    of_target.or_else(|| headers.get(HOST).cloned())
}

/// Returns the length of the body that the headers announce.
fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

impl<B> Clone for Forward<B> {
    fn clone(&self) -> Self {
        Self {
            connector: Arc::clone(&self.connector),
            timeouts: self.timeouts,
            body: PhantomData,
        }
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

/// The mark of a request that came over TLS, as a request extension. [`Forward`] tells the endpoint in `x-forwarded-proto` and
/// `forwarded`, if the request has a [`PeerAddr`], too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverTls;

/// The address of a request's client, as a request extension. [`Forward`] adds it to `x-forwarded-for` and `forwarded`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);
