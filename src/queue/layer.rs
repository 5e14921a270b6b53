//! The layer that puts a waiting room in front of a service.

use std::sync::Arc;

use http::Request;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::classify::{ClassifyContext, DefaultPriority, FromHeaders};
use super::handle::QueueHandle;
use super::map_response_body::MapResponseBodyLayer;
use super::observe::{ObservedLayer, Observer};
use super::on_reject::{OnReject, RejectAnswer};
use super::per_key::PerKeyLayer;
use super::per_service::PerServiceLayer;
use super::protocol::{Http, Plain, UntilBodyEnds, UntilHeaders, WithStatus};
use super::request_head::RequestHead;
use super::response_body::QueueResponseBody;
use super::service::Queue;
use super::shared_inner::{InnerServices, SharedInner};
use super::{Concurrency, InvalidQueueConfig, QueueConfig};
use crate::admit::{SlotPool, Ticket};
use crate::gate::Gate;
use crate::http::Rejection;
use crate::service::LayerState;

/// A layer that puts a bounded, ordered waiting room in front of a service.
///
/// **Every service that one layer value makes, and every clone of either, shares one waiting room and its slots.** So a
/// limit of 1 stays a limit of 1, even if the layer is around two routes that are served on four connections. With
/// [`per_key`](Self::per_key) each method or path has a limit of its own.
///
/// A slot is held until the response's body ends. A connection that a handler upgrades, for example to a WebSocket,
/// gives its slot back with the 101. An endless stream of events keeps its slot for as long as it is open (see
/// [`Hold`](super::Hold) for both).
///
/// The [body](super::QueueResponseBody) of a response knows how long its request waited, and why it was rejected.
///
/// The page `docs/in-your-app.md` of the repository has recipes for an existing app, such as a queue that the
/// configuration disables, exempt paths, gRPC, and a test of the limit.
///
/// ```
/// use std::time::Duration;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use bytes::Bytes;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let config = QueueConfig::new(4).max_size(100).max_wait(Duration::from_secs(10));
/// let service = ServiceBuilder::new()
///     .layer(QueueLayer::new(config))
///     .service(service_fn(|_: Request<Full<Bytes>>| async {
///         Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from("hello"))))
///     }));
///
/// let response = service.oneshot(Request::default()).await.unwrap();
/// assert_eq!(response.status(), 200);
/// // Only a request that had to wait says so in its response.
/// assert!(!response.headers().contains_key("server-timing"));
/// # }
/// ```
///
/// # Status while waiting
///
/// This is for layers made with [`status_stream`](Self::status_stream). A client that would show how long its user has to wait sends `x-queue-status: sse` with a request that accepts
/// `text/event-stream`. If such a request has to wait, it is answered with 200 at once. While it waits, a comment comes
/// every second; then the answer's events follow in the same response, as they come:
///
/// ```text
/// : queue position=3 eta=12s
///
/// : queue position=1 eta=4s
///
/// data: {"choices": [{"delta": {"content": "Hello"}}]}
/// ```
///
/// Position 1 is next. The `eta` is left out until the rate at which the waiting room empties is known. Clients that do
/// not know this protocol ignore comments.
///
/// The head has been sent by then, so its status is independent of the outcome, and the answer's own headers are lost.
/// A rejection, an error of the inner service and any status but 2xx come as one last event of type `error`. Its data
/// is the JSON body of the rejection or of the answer. A body of other text becomes the message of such a JSON body,
/// with the code `upstream_failed`. If the answer's body is longer than 64 KiB, encoded or broken off, the message has
/// only the status. The seconds of its `Retry-After` are beside code and message:
///
/// ```text
/// event: error
/// data: {"error":{"retry_after":3,"message":"…","type":"server_error","param":null,"code":"queue_timeout"}}
/// ```
///
/// A successful answer that is not a stream of events comes as one event for each line of its body. So a line of JSON
/// arrives whole, and each piece of the body is sent on as it comes.
///
/// The body drives the request. A server drops the body when the client has left, which frees the place in the waiting
/// room at once. Layers outside of this one see the 200 and a body that takes as long as the wait. A timeout in such a
/// layer does not bound the wait, but `max_wait` and the request's own deadline do.
///
/// A request that finds a slot free or is rejected at once is answered as ever, and so is gRPC.
/// [`status_stream(false)`](QueueConfig::status_stream) turns this off while the layer is in use. For the layers around it, a
/// response that began while its request waited has a [`DelayedHead`](super::DelayedHead) among its extensions.
///
/// # Once per request
///
/// A request must pass the services of one layer only once. If the same layer is around a router and around a router
/// nested in it, a request holds one slot while it waits for another. When as many requests as there are slots do that,
/// each waits for the others until its wait times out.
///
/// The layer does not detect this, because that would take a mark in every request, at the cost of requests that find a
/// free slot. Put the layer only around the outer router. Routes that are merged after it are not limited.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// let chat = Router::new().route("/chat", get(|| async { "hello" }));
/// let app: Router = Router::new()
///     .nest("/v1", chat)
///     .route("/models", get(|| async { "llama" }))
///     .layer(QueueLayer::new(QueueConfig::new(1)))
///     .merge(Router::new().route("/health", get(|| async { "ok" })));
/// # use tower::ServiceExt;
/// # let request = http::Request::get("/v1/chat").body(axum::body::Body::empty()).unwrap();
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # assert_eq!(runtime.block_on(app.oneshot(request)).unwrap().status(), 200);
/// ```
///
/// If the nested router needs a smaller limit as well, give it a layer of its own.
#[derive(Debug, Clone)]
pub struct QueueLayer<P = Http> {
    state: Arc<LayerState<SlotPool>>,
    inner: Arc<InnerServices>,
    protocol: P,
}

impl QueueLayer {
    /// Creates a waiting room for an HTTP or gRPC service, where rejections are responses.
    ///
    /// # Panics
    ///
    /// Panics if the configuration is invalid, with the field and the allowed values. For a configuration that comes
    /// from outside the program, use [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(config: QueueConfig) -> Self {
        or_panic(Self::try_new(config))
    }

    /// Creates a layer as [`new`](Self::new) does, but returns an error instead of a panic.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is invalid. The message has the field, its value and the allowed values.
    pub fn try_new(config: QueueConfig) -> Result<Self, InvalidQueueConfig> {
        Self::with(config, Http::new(FromHeaders, UntilBodyEnds::default()))
    }

    /// Creates a plain limit on concurrent requests: `limit` requests of an HTTP or gRPC service run at a time, each
    /// until its response's body ends. All services made by the layer share the limit. The configuration is
    /// [`QueueConfig::unbounded`].
    ///
    /// Requests over the limit wait, as with Tower's
    /// [`ConcurrencyLimit`](https://docs.rs/tower/0.5/tower/limit/struct.ConcurrencyLimit.html): all of them, first
    /// come, first served, for as long as it takes. The layer admits every request, and leaves all headers as they are.
    /// The wait is in the response future, so a timeout outside the layer bounds it, and dropping the future ends it.
    /// To bound the number of waiters and the time of a wait, use [`new`](Self::new). To let no request wait, use
    /// [`shed`](Self::shed).
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_triage::QueueLayer;
    ///
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "hello" }))
    ///     .layer(QueueLayer::limit(8));
    /// ```
    ///
    /// With a limit of 0, requests wait until the [handle](Self::handle) raises it. A limit above 1,048,575
    /// ([`SlotPool::MAX`]) is lowered to that number.
    #[must_use]
    pub fn limit(limit: usize) -> Self {
        Self::new(QueueConfig::unbounded(limit))
    }

    /// Creates a limit under which no request waits: `limit` requests of an HTTP or gRPC service run at a time, each
    /// until its response's body ends. Every request over the limit is rejected at once. All services made by the layer
    /// share the limit. The configuration is [`QueueConfig::shed`].
    ///
    /// A rejection is a 503 with the code `overloaded` and a `Retry-After` of 1 s, or the gRPC status `UNAVAILABLE`. It
    /// takes no lock and reads no header but the content type, which tells gRPC from HTTP.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_triage::QueueLayer;
    ///
    /// # let may_wait = false;
    /// let queue = if may_wait { QueueLayer::limit(8) } else { QueueLayer::shed(8) };
    /// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(queue);
    /// ```
    ///
    /// With a limit of 0, every request is rejected until the [handle](Self::handle) raises the limit. A limit above
    /// 1,048,575 ([`SlotPool::MAX`]) is lowered to that number.
    ///
    /// A request that has a slot still waits for an inner service that is not ready. A tenant that is at a
    /// [limit of its own](crate::admit::TenantLimits) is rejected with 429, although slots may be free.
    #[must_use]
    pub fn shed(limit: usize) -> Self {
        Self::new(QueueConfig::shed(limit))
    }
}

impl QueueLayer<Http<FromHeaders, UntilHeaders>> {
    /// A waiting room for an HTTP or gRPC service, where a slot is free as soon as the response's head is there, as with
    /// Tower's [`ConcurrencyLimit`](https://docs.rs/tower/0.5/tower/limit/struct.ConcurrencyLimit.html). For large downloads
    /// that cost the service nothing.
    ///
    /// The body of the responses is the inner service's, so that it costs nothing, and has to be [`From<Bytes>`](From) for
    /// rejections. [`hold`](QueueConfig::hold) means nothing here.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "hello" }))
    ///     .layer(QueueLayer::until_headers(QueueConfig::new(8)));
    /// ```
    ///
    /// # Panics
    ///
    /// If the configuration is invalid, with the field and what is allowed. For a configuration that comes from
    /// outside the program, there is [`try_until_headers`](Self::try_until_headers).
    #[must_use]
    #[track_caller]
    pub fn until_headers(config: QueueConfig) -> Self {
        or_panic(Self::try_until_headers(config))
    }

    /// Makes a layer as [`until_headers`](Self::until_headers) does, without a panic.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid: which field, its value, and what is allowed.
    pub fn try_until_headers(config: QueueConfig) -> Result<Self, InvalidQueueConfig> {
        Self::with(config, Http::new(FromHeaders, UntilHeaders))
    }
}

impl QueueLayer<Plain> {
    /// Creates a waiting room for any other service, where rejections are errors ([`QueueError`](super::QueueError)).
    ///
    /// The slot is held until the response future ends. All requests have the default priority unless
    /// [`classify`](Self::classify) reads another one.
    ///
    /// ```
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    /// use tower_triage::{QueueConfig, QueueError, QueueLayer, RejectReason};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let queue = QueueLayer::plain(QueueConfig::new(1));
    /// let handle = queue.handle();
    /// let service = ServiceBuilder::new()
    ///     .layer(queue)
    ///     .service(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) }));
    /// assert_eq!(service.clone().oneshot(1).await?, 2);
    ///
    /// handle.close();
    /// let refused = service.oneshot(1).await.unwrap_err();
    /// assert!(matches!(refused, QueueError::Rejected(RejectReason::ShuttingDown)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the configuration is invalid, with the field and the allowed values. For a configuration that comes
    /// from outside the program, use [`try_plain`](Self::try_plain).
    #[must_use]
    #[track_caller]
    pub fn plain(config: QueueConfig) -> Self {
        or_panic(Self::try_plain(config))
    }

    /// Creates a layer as [`plain`](Self::plain) does, but returns an error instead of a panic.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is invalid. The message has the field, its value and the allowed values.
    pub fn try_plain(config: QueueConfig) -> Result<Self, InvalidQueueConfig> {
        let classify = DefaultPriority;
        Self::with(config, Plain { classify })
    }
}

/// Creates the state of a layer, with a gate that gets its slots from the source in `concurrency`.
pub(super) fn new_state(
    config: QueueConfig,
) -> Result<Arc<LayerState<SlotPool>>, InvalidQueueConfig> {
    let concurrency = config.concurrency;
    LayerState::new(config, |room| match concurrency {
        Concurrency::Limit(limit) => Gate::new(SlotPool::new(limit), room),
        Concurrency::Adaptive(limit) => Gate::new(SlotPool::new(limit.initial_limit()), room),
        Concurrency::Inner => Gate::from_inner(room),
    })
}

/// Returns the layer, or panics with the error of an invalid configuration, at the caller's location.
#[track_caller]
fn or_panic<P>(layer: Result<QueueLayer<P>, InvalidQueueConfig>) -> QueueLayer<P> {
    // A closure, as in `unwrap_or_else`, would hide the caller.
    match layer {
        Ok(layer) => layer,
        Err(error) => panic!("invalid `QueueConfig`: {error}"),
    }
}

impl<K, M, E> QueueLayer<Http<K, M, E>> {
    /// Reads tickets with a closure instead of from headers. The [context](ClassifyContext) has the ticket that the headers
    /// say, with the caller's deadline and tenant.
    ///
    /// ```
    /// use tower_triage::{Priority, QueueConfig, QueueLayer};
    ///
    /// let queue = QueueLayer::new(QueueConfig::new(8)).classify(|request, context| {
    ///     let mut ticket = context.ticket_from_headers(request.headers());
    ///     if request.headers().contains_key("x-paid") {
    ///         ticket.priority = Priority::HIGHEST;
    ///     }
    ///     ticket
    /// });
    /// # let _: axum::Router = axum::Router::new().layer(queue);
    /// ```
    #[must_use]
    pub fn classify<B, F>(self, classify: F) -> QueueLayer<Http<F, M, E>>
    where
        F: Fn(&Request<B>, &ClassifyContext<'_>) -> Ticket,
    {
        self.classify_with(classify)
    }

    /// Reads tickets with a [`Classify`](super::Classify) instead of from headers.
    #[must_use]
    pub fn classify_with<N>(self, classify: N) -> QueueLayer<Http<N, M, E>> {
        self.map_protocol(|http| Http {
            classify,
            mode: http.mode,
            exempt: http.exempt,
            tells_queue_time: http.tells_queue_time,
        })
    }

    /// Lets the requests pass for which `exempt` returns `true`: health checks, metrics, WebSockets.
    ///
    /// An exempt request takes no slot, is not counted, and is passed to the inner service even if the room is full or
    /// closed. It waits only until the inner service is ready. A second call replaces the first closure. Layers without
    /// exemptions pay nothing for them. The closure has to be `Send + 'static`.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let queue = QueueLayer::new(QueueConfig::new(8))
    ///     .exempt(|request| ["/health", "/metrics", "/socket"].contains(&request.uri().path()));
    /// let app: Router = Router::new()
    ///     .route("/chat", get(|| async { "hello" }))
    ///     .route("/health", get(|| async { "ok" }))
    ///     .layer(queue);
    /// ```
    ///
    /// Decide by the path, because every client can send any header. The paths of the gRPC health service begin with
    /// `/grpc.health.v1.Health/`.
    ///
    /// In axum, there are two ways without a closure. Routes that are merged after `.layer` are
    /// [outside of the queue](Self#once-per-request). With `.route_layer` in place of `.layer`, requests for unknown paths
    /// are outside as well, so they get a 404 even if the room is full.
    ///
    /// With [`Overflow::Backpressure`](super::Overflow::Backpressure), `poll_ready` waits for room before there is a
    /// request, so exempt requests wait there, too. A layer with exemptions cannot [share](Self::share_inner) its inner
    /// service, which only the head of the room may poll.
    #[must_use]
    pub fn exempt<B, F>(self, exempt: F) -> QueueLayer<Http<K, M, F>>
    where
        F: Fn(&Request<B>) -> bool + Clone + Send + 'static,
    {
        self.inner.add_cloned(); // exempt requests poll clones of the inner service
        self.map_protocol(|http| Http {
            classify: http.classify,
            mode: http.mode,
            exempt,
            tells_queue_time: http.tells_queue_time,
        })
    }

    /// Tells `observer` what becomes of each request: admitted, rejected or abandoned, and how an admitted one ended.
    ///
    /// Call it last, because it returns a layer of another type; only
    /// [`map_response_body`](super::ObservedLayer::map_response_body) comes after it. The bodies of the responses are
    /// [`ObservedBody`](super::ObservedBody). Exempt requests are not observed. Layers without an observer pay nothing for
    /// it.
    ///
    /// The service has to be HTTP, because the observer reads the [head](RequestHead) of each request. A layer around a
    /// [`plain`](QueueLayer::plain) queue finds the reason of a rejection in the [`QueueError`](super::QueueError).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    /// use std::time::Duration;
    /// use axum::{Router, routing::get};
    /// use tower_triage::queue::{Observer, RequestEnd, RequestHead};
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// #[derive(Default)]
    /// struct Panics(AtomicUsize);
    ///
    /// impl Observer for Panics {
    ///     type Request = ();
    ///     fn on_arrived(&self, _: &RequestHead<'_>) {}
    ///     fn on_finished(&self, _: &mut (), end: RequestEnd, _: Duration) {
    ///         if end == RequestEnd::Panicked {
    ///             self.0.fetch_add(1, Relaxed);
    ///         }
    ///     }
    /// }
    ///
    /// let panics = Arc::new(Panics::default());
    /// let queue = QueueLayer::new(QueueConfig::new(8)).observe(Arc::clone(&panics));
    /// let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(queue);
    /// ```
    #[must_use]
    pub fn observe<O: Observer + Clone>(self, observer: O) -> ObservedLayer<Self, O> {
        ObservedLayer::new(self, observer)
    }

    /// Maps the body of every response with `map`, so that the response keeps the inner service's own type.
    ///
    /// Services that are a queue or not by configuration need this, because both have to return the same type. So does
    /// code that asks for a service with that very type. Pass the constructor that boxes any body: `axum::body::Body::new`,
    /// `tonic::body::Body::new`, or `http_body_util::combinators::BoxBody::new`.
    ///
    /// ```
    /// use axum::{Router, body::Body, routing::get};
    /// use tower::util::option_layer;
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let config = Some(QueueConfig::new(8)); // `None` if the queue is disabled
    /// let queue = config.map(|config| QueueLayer::new(config).map_response_body(Body::new));
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "hello" }))
    ///     .layer(option_layer(queue));
    /// ```
    ///
    /// Call it last, because it returns a layer of another type. The slot is held until the mapped body drops the
    /// original one or reads it to its end. The [time of the wait](super::QueueResponseBody::queue_time) and the
    /// [reason of a rejection](super::QueueResponseBody::reason) are known to `map` only. With
    /// [`status_stream`](QueueLayer::status_stream) they are also extensions of the response.
    #[must_use]
    pub fn map_response_body<B, N, F>(self, map: F) -> MapResponseBodyLayer<Self, F>
    where
        F: Fn(QueueResponseBody<B>) -> N + Clone,
    {
        MapResponseBodyLayer::new(self, map)
    }

    /// Gives each key of requests a queue of its own, with the layer's configuration: a limit for each gRPC method, or
    /// for each matched path.
    ///
    /// ```
    /// use axum::extract::MatchedPath;
    /// use axum::{Router, routing::get};
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let queue = QueueLayer::new(QueueConfig::new(8)).per_key(|request| {
    ///     let path = request.extensions().get::<MatchedPath>();
    ///     path.map_or("", MatchedPath::as_str)
    /// });
    /// let app: Router = Router::new()
    ///     .route("/users/{id}", get(|| async { "a user" })) // 8 of these run at a time
    ///     .route("/search", get(|| async { "results" })) // and 8 of these
    ///     .layer(queue);
    /// ```
    ///
    /// In tonic, the path names the method. Clients can call methods that do not exist, so name the others alike:
    ///
    /// ```
    /// use http::Request;
    /// use tower_triage::QueueLayer;
    ///
    /// let queue = QueueLayer::shed(8).per_key(|request: &Request<tonic::body::Body>| {
    ///     match request.uri().path() {
    ///         path @ ("/shop.Orders/Place" | "/shop.Orders/Cancel") => path,
    ///         _ => "",
    ///     }
    /// });
    /// ```
    ///
    /// # Keys
    ///
    /// The server has to choose the keys, because a client that invents keys gets a queue for each of them. Up to 1,000
    /// keys of up to 256 bytes have queues of their own at a time. For one key more, the queues in which no request runs
    /// or waits are dropped, with their totals and measurements. If all of the queues are in use, requests of further
    /// keys share one queue, as those of longer keys always do.
    ///
    /// # The rest of the layer
    ///
    /// Call this after the methods that return a `QueueLayer`. The [handle](PerKeyLayer::handle) of the new layer
    /// reports on all queues and changes them, and a [token](Self::shutdown) that was given before closes them. A handle
    /// of this layer has no effect on them. With [`Overflow::Backpressure`](super::Overflow::Backpressure), calls are
    /// rejected as with [`Overflow::Reject`](super::Overflow::Reject), because `poll_ready` does not know the key. A
    /// request that finds a slot free pays for a look at its key, and no more.
    #[must_use]
    pub fn per_key<B, F>(self, key: F) -> PerKeyLayer<Http<K, M, E>, F>
    where
        Http<K, M, E>: Clone,
        F: Fn(&Request<B>) -> &str,
    {
        PerKeyLayer::new(&self, key)
    }

    /// Tells the inner service the time that each request waited, as a [`QueueTime`](super::QueueTime) among the
    /// request's extensions. The time is zero if the request found a slot free. Off by default.
    ///
    /// ```
    /// use axum::{Extension, Router, routing::get};
    /// use tower_triage::queue::QueueTime;
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// async fn handler(Extension(QueueTime(waited)): Extension<QueueTime>) -> String {
    ///     format!("waited for {waited:?}")
    /// }
    /// let queue = QueueLayer::new(QueueConfig::new(8)).queue_time_extension();
    /// let app: Router = Router::new().route("/", get(handler)).layer(queue);
    /// ```
    #[must_use]
    pub fn queue_time_extension(mut self) -> Self {
        self.protocol.tells_queue_time = true;
        self
    }
}

impl<K, E> QueueLayer<Http<K, UntilBodyEnds, E>> {
    /// Answers a client that asks for it [while its request waits](Self#status-while-waiting), with its position. So the inner
    /// service, its future and error, the requests and the bodies have to be `Send` and to borrow nothing.
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "hello" }))
    ///     .layer(QueueLayer::new(QueueConfig::new(8)).status_stream());
    /// ```
    #[must_use]
    pub fn status_stream(self) -> QueueLayer<Http<K, WithStatus, E>> {
        self.map_protocol(|http| Http {
            classify: http.classify,
            mode: WithStatus(http.mode),
            exempt: http.exempt,
            tells_queue_time: http.tells_queue_time,
        })
    }

    /// Answers rejected requests with `answer`, which gets the rejection and the head of the request. It returns any
    /// response, or a [`Rejection`].
    ///
    /// A [`Rejection`] is written in the form that the request asks for, as JSON or as a gRPC status:
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let queue = QueueLayer::new(QueueConfig::new(8))
    ///     .on_reject(|why, _| why.clone().with_status(StatusCode::TOO_MANY_REQUESTS));
    /// # let _: axum::Router = axum::Router::new().layer(queue);
    /// ```
    ///
    /// A response is sent as it is, also to gRPC clients. Only `server-timing` is added, if that is configured and the
    /// request waited for 1 ms or longer. The body may be a stream. If the body fails, so does the client's response, as
    /// with a body of the inner service.
    ///
    /// An API with two shapes of errors chooses between them by the path. Status and `Retry-After` stay the same here:
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::Full;
    /// use serde_json::json;
    /// use tower_triage::QueueLayer;
    ///
    /// fn anthropic(message: &str) -> Bytes {
    ///     let error = json!({ "type": "overloaded_error", "message": message });
    ///     json!({ "type": "error", "error": error }).to_string().into()
    /// }
    ///
    /// let queue = QueueLayer::shed(8).on_reject(|why, request| {
    ///     let openai = why.clone().into_response();
    ///     let is_messages = request.uri().path() == "/v1/messages";
    ///     openai.map(|body| Full::new(if is_messages { anthropic(why.message()) } else { body }))
    /// });
    /// # let _: axum::Router = axum::Router::new().layer(queue);
    /// ```
    ///
    /// The closure runs for rejected requests only. It can't wait, because a request that waits before it is refused
    /// would hold memory and a connection without a limit. A future is therefore [refused](super::RejectAnswer) by the
    /// compiler.
    #[must_use]
    pub fn on_reject<F, A>(mut self, answer: F) -> Self
    where
        F: Fn(&Rejection, &RequestHead<'_>) -> A + Send + Sync + 'static,
        A: RejectAnswer,
    {
        self.protocol.mode.on_reject = Some(OnReject::new(answer));
        self
    }
}

impl<K> QueueLayer<Plain<K>> {
    /// Reads tickets with a closure, instead of giving all requests the default priority.
    ///
    /// ```
    /// use tower_triage::{Priority, QueueConfig, QueueLayer, Ticket};
    ///
    /// let queue = QueueLayer::plain(QueueConfig::new(8)).classify(|job: &String, context| {
    ///     let level = if job.starts_with('!') { Priority::HIGHEST } else { Priority(1) };
    ///     Ticket::new(level, context.arrival())
    /// });
    /// ```
    #[must_use]
    pub fn classify<Req, F>(self, classify: F) -> QueueLayer<Plain<F>>
    where
        F: Fn(&Req, &ClassifyContext<'_>) -> Ticket,
    {
        self.classify_with(classify)
    }

    /// Reads tickets with a [`Classify`](super::Classify), instead of giving all requests the default priority.
    #[must_use]
    pub fn classify_with<N>(self, classify: N) -> QueueLayer<Plain<N>> {
        self.map_protocol(|_| Plain { classify })
    }
}

impl<P> QueueLayer<P> {
    fn with(config: QueueConfig, protocol: P) -> Result<Self, InvalidQueueConfig> {
        Ok(Self {
            state: new_state(config)?,
            inner: Arc::default(),
            protocol,
        })
    }

    fn map_protocol<N>(self, map: impl FnOnce(P) -> N) -> QueueLayer<N> {
        QueueLayer {
            state: self.state,
            inner: self.inner,
            protocol: map(self.protocol),
        }
    }

    /// Closes the waiting room when `token` is cancelled: every waiting request and every later one is rejected with
    /// `shutting_down`, and running requests finish.
    ///
    /// The room is closed before `cancel` returns, whether or not that is called in a runtime. If `token` has been
    /// cancelled already, the room is closed at once. A second token replaces the first. A token does not keep the
    /// layer alive.
    #[must_use]
    pub fn shutdown(self, token: CancellationToken) -> Self {
        self.state.close_on(token);
        self
    }

    /// Returns a handle that reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        QueueHandle(Arc::clone(&self.state))
    }

    /// Creates a layer for an inner service that cannot be cloned, such as a rate limit. The clones of the resulting
    /// service share the inner service, and only the next request uses it.
    ///
    /// # Errors
    ///
    /// - Returns [`CannotShare`](InvalidQueueConfig::CannotShare) if the concurrency is not [`Concurrency::Inner`].
    ///   With a number of slots, several requests would use the inner service at a time.
    /// - Returns [`NotAlone`](InvalidQueueConfig::NotAlone) if this layer or a clone of it has made a service or exempts
    ///   requests, or if this method was called before. An inner service that is shared must be the only one behind its waiting
    ///   room.
    pub fn share_inner(self) -> Result<SharedQueueLayer<P>, InvalidQueueConfig> {
        match self.state.settings().config.concurrency {
            Concurrency::Limit(_) | Concurrency::Adaptive(_) => {
                Err(InvalidQueueConfig::CannotShare)
            }
            Concurrency::Inner if self.inner.claim() => Ok(SharedQueueLayer(self)),
            Concurrency::Inner => Err(InvalidQueueConfig::NotAlone),
        }
    }

    /// Gives each service that the layer makes a queue of its own, with the layer's configuration. So each call of
    /// [`Layer::layer`] makes a limit of its own, as with Tower's `ConcurrencyLimitLayer`.
    ///
    /// ```
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let queue = QueueLayer::plain(QueueConfig::new(4)).per_service();
    /// let get = queue.layer(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n) }));
    /// let put = queue.layer(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n) }));
    /// assert_eq!(get.clone().oneshot(1).await?, 1);
    /// assert_eq!((get.handle().status().served, put.handle().status().served), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// This is for services that the caller wraps one by one. Clones of a service share its queue. Each service has a
    /// [handle](Queue::handle) of its own, and a handle of this layer has no effect on them. A
    /// [token](Self::shutdown) that was given before closes all of them.
    ///
    /// axum wraps the handler of a route anew for each connection, or even for each request. A limit per service holds
    /// for little there, so use [`per_key`](QueueLayer::per_key) with the matched path.
    #[must_use]
    pub fn per_service(self) -> PerServiceLayer<P>
    where
        P: Clone,
    {
        PerServiceLayer::new(self.separate())
    }

    /// Returns a layer with the same configuration and the same token, and a waiting room of its own.
    pub(super) fn separate(&self) -> Self
    where
        P: Clone,
    {
        let config = self.state.settings().config.clone();
        let layer = Self::with(config, self.protocol.clone());
        // The configuration was accepted before, so there is no error.
        let layer = layer.unwrap_or_else(|_| self.clone());
        if self.state.gate.is_closed() {
            layer.state.gate.close();
        }
        match self.state.shutdown_token() {
            Some(token) => layer.shutdown(token),
            None => layer,
        }
    }

    pub(super) fn into_parts(self) -> (Arc<LayerState<SlotPool>>, P, Option<CancellationToken>) {
        let token = self.state.shutdown_token();
        (self.state, self.protocol, token)
    }

    fn is_from_inner(&self) -> bool {
        self.state.settings().config.concurrency == Concurrency::Inner
    }
}

impl<S, P: Clone> Layer<S> for QueueLayer<P> {
    type Service = Queue<S, P>;

    /// # Panics
    ///
    /// Panics if an inner service is [shared](QueueLayer::share_inner) behind the same waiting room.
    fn layer(&self, inner: S) -> Self::Service {
        if self.is_from_inner() && !self.inner.add_cloned() {
            panic!("{}", InvalidQueueConfig::NotAlone);
        }
        Queue::new(inner, Arc::clone(&self.state), self.protocol.clone())
    }
}

/// A [`QueueLayer`] for inner services that cannot be cloned. Created by [`QueueLayer::share_inner`].
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::{QueueConfig, QueueLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let service = ServiceBuilder::new()
///     .layer(QueueLayer::plain(QueueConfig::inner()).share_inner()?)
///     .rate_limit(100, Duration::from_secs(1))
///     .service(service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n + 1) }));
///
/// assert_eq!(service.oneshot(1).await?, 2);
/// # Ok(())
/// # }
/// ```
///
/// The layer makes one service, whose clones share the inner service. The layer is not `Clone`, so functions that make
/// several services, such as `axum::Router::layer`, reject it at compile time. Each further service needs a layer of
/// its own.
#[derive(Debug)]
pub struct SharedQueueLayer<P = Http>(QueueLayer<P>);

impl<P> SharedQueueLayer<P> {
    /// Returns a handle that reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        self.0.handle()
    }
}

impl<S, P: Clone> Layer<S> for SharedQueueLayer<P> {
    type Service = Queue<SharedInner<S>, P>;

    /// # Panics
    ///
    /// Panics if it is called for the second time.
    fn layer(&self, inner: S) -> Self::Service {
        let Self(layer) = self;
        if !layer.inner.add_shared() {
            panic!("{}", InvalidQueueConfig::NotAlone);
        }
        let (state, protocol) = (Arc::clone(&layer.state), layer.protocol.clone());
        Queue::new(SharedInner::new(inner), state, protocol)
    }
}
