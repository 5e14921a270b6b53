//! The layer that puts a waiting room in front of a service.

mod http_layer;
mod shared;

pub use shared::SharedQueueLayer;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::classify::{ClassifyContext, DefaultPriority, FromHeaders};
use super::handle::QueueHandle;
use super::per_service::PerServiceLayer;
use super::protocol::{Http, Plain, UntilBodyEnds, UntilHeaders};
use super::service::Queue;
use super::shared_inner::InnerServices;
use super::{Concurrency, InvalidQueueConfig, QueueConfig};
use crate::admit::{SlotPool, Ticket};
use crate::gate::Gate;
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
    ///
    /// Uploads that wait over HTTP/2 can stop all requests of their connection, as with any limit. Nothing ends that here,
    /// because the wait is endless. [`read_ahead`](Self::read_ahead) or a larger window of the connection prevents it.
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
