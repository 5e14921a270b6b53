//! The layer that puts a waiting room in front of a service.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Body;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::classify::{ClassifyContext, DefaultPriority, FromHeaders};
use super::handle::QueueHandle;
use super::protocol::{Http, Plain, Render, UntilBodyEnds, UntilHeaders, WithStatus};
use super::response_body::RenderedBody;
use super::service::Queue;
use super::shared_inner::{InnerServices, SharedInner};
use super::{Concurrency, InvalidQueueConfig, QueueConfig};
use crate::admit::{SlotPool, TargetWait, Ticket};
use crate::gate::Gate;
use crate::http::Rejection;
use crate::service::LayerState;

/// Puts a bounded, ordered waiting room in front of a service.
///
/// **Every service that one layer value makes, and every clone of either, shares one waiting room and its
/// slots**: wrapped around two routes and served on four connections, a limit of 1 is a limit of 1.
///
/// A slot is held until the response's body ends. A connection that a handler upgrades, to a WebSocket for example,
/// holds none from the 101 on: see [`Hold`](super::Hold).
///
/// The [body](super::QueueResponseBody) of a response knows how long its request waited, and why it was rejected.
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
/// Position 1 is next. There is no `eta` until it is known how fast the waiting room empties. Clients that know nothing
/// of this ignore comments.
///
/// The head has been sent by then, so its status says nothing of the outcome, and the answer's own headers are lost. A
/// rejection, an error of the inner service and any status but 2xx come as one last event of type `error`, with the
/// JSON body of the rejection or of the answer. Other text comes as the message of such a body, with the code
/// `upstream_failed`; of what is longer than 64 KiB, encoded or broken off, the message says the status alone. The
/// seconds of its `Retry-After` are beside code and message:
///
/// ```text
/// event: error
/// data: {"error":{"retry_after":3,"message":"…","type":"server_error","param":null,"code":"queue_timeout"}}
/// ```
///
/// A successful answer that is no stream of events comes as one event for each
/// line of its body: so a line that is JSON arrives whole, and nothing has to be collected first.
///
/// The body drives the request: a server that drops it, because the client has left, frees the place in the waiting room
/// at once. Layers outside of this one see the 200 and a body that takes as long as the wait; a timeout there does not
/// bound the wait, but `max_wait` and the request's own deadline do. The inner service is asked for a body without an
/// encoding (`accept-encoding: identity`). In a room with thousands of waiters whose order takes long to compute,
/// comments come less often.
///
/// A request that finds a slot free or is rejected at once is answered as ever, and so is gRPC.
/// [`status_stream(false)`](QueueConfig::status_stream) turns this off while the layer is in use. For the layers around it, a
/// response that began while its request waited has a [`DelayedHead`](super::DelayedHead) among its extensions.
///
/// # Once per request
///
/// A request must pass the services of one layer only once. Where the same layer is around a router and around one
/// that is nested in it, a request holds one slot while it waits for another. When as many requests as there are
/// slots do that, each waits for the others until its wait times out. This is not detected: it would take a mark in
/// every request, at the cost of those that find a free slot. Put the layer around the outer router alone; routes that
/// are merged after it are not limited.
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
/// Where the nested router needs a smaller limit besides, give it a layer of its own.
#[derive(Debug, Clone)]
pub struct QueueLayer<P = Http> {
    state: Arc<LayerState<SlotPool>>,
    inner: Arc<InnerServices>,
    protocol: P,
}

impl QueueLayer {
    /// A waiting room for an HTTP or gRPC service, where rejections are responses.
    ///
    /// # Panics
    ///
    /// If the configuration is invalid, with the field and what is allowed. For a configuration that comes from
    /// outside the program, there is [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(config: QueueConfig) -> Self {
        Self::try_new(config).unwrap_or_else(|error| refuse(&error))
    }

    /// Makes a layer as [`new`](Self::new) does, without a panic.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid: which field, its value, and what is allowed.
    pub fn try_new(config: QueueConfig) -> Result<Self, InvalidQueueConfig> {
        Self::with(config, Http::new(FromHeaders, UntilBodyEnds::default()))
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
        Self::try_until_headers(config).unwrap_or_else(|error| refuse(&error))
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

impl QueueLayer<Http<DefaultPriority>> {
    /// A limit on concurrent requests, and nothing else: `limit` requests of an HTTP or gRPC service run at a time,
    /// each until its response's body ends. All services made by the layer share the limit.
    ///
    /// Requests over the limit wait, as with Tower's
    /// [`ConcurrencyLimit`](https://docs.rs/tower/0.5/tower/limit/struct.ConcurrencyLimit.html): all of them, first
    /// come, first served, for as long as it takes. No request is rejected, no header is read, and none is added. The
    /// wait is in the response future, so that a timeout outside the layer bounds it, and dropping the future ends it.
    /// To bound how many wait and for how long, use [`new`](QueueLayer::new).
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
    /// # Panics
    ///
    /// If `limit` is 0: no request would ever be served.
    #[must_use]
    #[track_caller]
    pub fn limit(limit: usize) -> Self {
        let config = QueueConfig::new(limit)
            .max_size(usize::MAX)
            .max_wait(None)
            .target_wait(TargetWait::Off)
            .server_timing(false);
        let protocol = Http::new(DefaultPriority, UntilBodyEnds::default());
        Self::with(config, protocol).unwrap_or_else(|error| refuse(&error))
    }
}

impl QueueLayer<Plain> {
    /// A waiting room for any other service, where rejections are errors ([`QueueError`](super::QueueError)) and the
    /// slot is held until the response future ends. All requests have the default priority unless
    /// [`classify`](Self::classify) says otherwise.
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
    /// If the configuration is invalid, with the field and what is allowed. For a configuration that comes from
    /// outside the program, there is [`try_plain`](Self::try_plain).
    #[must_use]
    #[track_caller]
    pub fn plain(config: QueueConfig) -> Self {
        Self::try_plain(config).unwrap_or_else(|error| refuse(&error))
    }

    /// Makes a layer as [`plain`](Self::plain) does, without a panic.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid: which field, its value, and what is allowed.
    pub fn try_plain(config: QueueConfig) -> Result<Self, InvalidQueueConfig> {
        let classify = DefaultPriority;
        Self::with(config, Plain { classify })
    }
}

#[track_caller]
fn refuse(error: &InvalidQueueConfig) -> ! {
    panic!("invalid `QueueConfig`: {error}")
}

impl<K, M> QueueLayer<Http<K, M>> {
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
    pub fn classify<B, F>(self, classify: F) -> QueueLayer<Http<F, M>>
    where
        F: Fn(&Request<B>, &ClassifyContext<'_>) -> Ticket,
    {
        self.classify_with(classify)
    }

    /// Reads tickets with a [`Classify`](super::Classify) instead of from headers.
    #[must_use]
    pub fn classify_with<N>(self, classify: N) -> QueueLayer<Http<N, M>> {
        self.map_protocol(|http| Http {
            classify,
            mode: http.mode,
            tells_queue_time: http.tells_queue_time,
        })
    }

    /// Tells the inner service how long each request waited: a [`QueueTime`](super::QueueTime) is among the request's
    /// extensions, of zero if it found a slot free. Off by default.
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

impl<K> QueueLayer<Http<K>> {
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
    pub fn status_stream(self) -> QueueLayer<Http<K, WithStatus>> {
        self.map_protocol(|http| Http {
            classify: http.classify,
            mode: WithStatus(http.mode),
            tells_queue_time: http.tells_queue_time,
        })
    }

    /// Writes rejections with `render`, which gets the rejection and the request's headers and returns any response.
    /// The response is sent as it is, with `server-timing` if it waited for 1 ms or longer; to gRPC clients, too.
    ///
    /// Its body may be a stream. If the body fails, so does the client's response, as with a body of the inner service.
    ///
    /// ```
    /// use axum::Json;
    /// use axum::response::IntoResponse;
    /// use http::HeaderMap;
    /// use tower_triage::rejection::Rejection;
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// let sorry = |why: &Rejection, _: &HeaderMap| {
    ///     let wait = why.retry_after().map_or(1, |wait| wait.as_secs());
    ///     let retry_after = [("retry-after", wait.to_string())];
    ///     (why.status(), retry_after, Json(why.message().to_owned())).into_response()
    /// };
    /// let queue = QueueLayer::new(QueueConfig::new(8)).on_reject(sorry);
    /// # let _: axum::Router = axum::Router::new().layer(queue);
    /// ```
    #[must_use]
    pub fn on_reject<F, B>(mut self, render: F) -> Self
    where
        F: Fn(&Rejection, &HeaderMap) -> Response<B> + Send + Sync + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let render = Render(Box::new(move |rejection: &_, headers: &_| {
            render(rejection, headers).map(RenderedBody::new)
        }));
        self.protocol.mode.render = Some(Arc::new(render));
        self
    }
}

impl<K> QueueLayer<Plain<K>> {
    /// Reads tickets with a closure.
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

    /// Reads tickets with a [`Classify`](super::Classify).
    #[must_use]
    pub fn classify_with<N>(self, classify: N) -> QueueLayer<Plain<N>> {
        self.map_protocol(|_| Plain { classify })
    }
}

impl<P> QueueLayer<P> {
    fn with(config: QueueConfig, protocol: P) -> Result<Self, InvalidQueueConfig> {
        let concurrency = config.concurrency;
        let state = LayerState::new(config, |room| match concurrency {
            Concurrency::Limit(limit) => Gate::new(SlotPool::new(limit), room),
            Concurrency::Adaptive(limit) => Gate::new(SlotPool::new(limit.initial_limit()), room),
            Concurrency::Inner => Gate::from_inner(room),
        })?;
        Ok(Self {
            state,
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
    /// The room is closed before `cancel` returns, on any runtime or none; at once if `token` has been cancelled
    /// already. A second token replaces the first. A token does not keep the layer alive.
    #[must_use]
    pub fn shutdown(self, token: CancellationToken) -> Self {
        self.state.close_on(token);
        self
    }

    /// Reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        QueueHandle(Arc::clone(&self.state))
    }

    /// Makes a layer for an inner service that cannot be cloned, such as a rate limit: the clones of the service that is made
    /// share it, and only the request that is next uses it.
    ///
    /// # Errors
    ///
    /// - If the concurrency is not [`Concurrency::Inner`]: with a number of its own, several requests would
    ///   use the inner service at a time.
    /// - If this layer or a clone of it has made a service already, or this method has been called before: an inner
    ///   service that is shared must be the only one behind its waiting room.
    pub fn share_inner(self) -> Result<SharedQueueLayer<P>, InvalidQueueConfig> {
        match self.state.settings().config.concurrency {
            Concurrency::Limit(_) | Concurrency::Adaptive(_) => {
                Err(InvalidQueueConfig::CannotShare)
            }
            Concurrency::Inner if self.inner.claim() => Ok(SharedQueueLayer(self)),
            Concurrency::Inner => Err(InvalidQueueConfig::NotAlone),
        }
    }

    fn is_from_inner(&self) -> bool {
        self.state.settings().config.concurrency == Concurrency::Inner
    }
}

impl<S, P: Clone> Layer<S> for QueueLayer<P> {
    type Service = Queue<S, P>;

    /// # Panics
    ///
    /// If an inner service is [shared](QueueLayer::share_inner) behind the same waiting room.
    fn layer(&self, inner: S) -> Self::Service {
        if self.is_from_inner() && !self.inner.add_cloned() {
            panic!("{}", InvalidQueueConfig::NotAlone);
        }
        Queue::new(inner, Arc::clone(&self.state), self.protocol.clone())
    }
}

/// A [`QueueLayer`] for inner services that cannot be cloned. Made by [`QueueLayer::share_inner`].
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
/// The layer makes one service, and the clones of that share the inner one. The layer is not `Clone`, so a function that would
/// make more of them, such as `axum::Router::layer`, does not take it. Each further service needs a layer of its own.
#[derive(Debug)]
pub struct SharedQueueLayer<P = Http>(QueueLayer<P>);

impl<P> SharedQueueLayer<P> {
    /// Reports on the waiting room, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> QueueHandle {
        self.0.handle()
    }
}

impl<S, P: Clone> Layer<S> for SharedQueueLayer<P> {
    type Service = Queue<SharedInner<S>, P>;

    /// # Panics
    ///
    /// If it is called for the second time.
    fn layer(&self, inner: S) -> Self::Service {
        let Self(layer) = self;
        if !layer.inner.add_shared() {
            panic!("{}", InvalidQueueConfig::NotAlone);
        }
        let (state, protocol) = (Arc::clone(&layer.state), layer.protocol.clone());
        Queue::new(SharedInner::new(inner), state, protocol)
    }
}
