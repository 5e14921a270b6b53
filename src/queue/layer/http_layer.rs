//! The methods of layers for HTTP and gRPC services.

use http::Request;

use super::QueueLayer;
use crate::admit::Ticket;
use crate::http::{BodyMemory, Rejection};
use crate::queue::classify::ClassifyContext;
use crate::queue::map_response_body::MapResponseBodyLayer;
use crate::queue::observe::{ObservedLayer, Observer};
use crate::queue::on_reject::{OnReject, RejectAnswer};
use crate::queue::per_key::PerKeyLayer;
use crate::queue::protocol::{Http, UntilBodyEnds, WithStatus};
use crate::queue::read_ahead::ReadAheadLayer;
use crate::queue::request_head::RequestHead;
use crate::queue::response_body::QueueResponseBody;

impl<K, M, E> QueueLayer<Http<K, M, E>> {
    /// Reads tickets with a closure instead of from headers. The [context](ClassifyContext) has the ticket that the headers
    /// say, with the caller's deadline and tenant.
    ///
    /// Clients can send any header. Take the tenant and the priority from an extension of the request if a layer in front
    /// verifies its clients:
    ///
    /// ```
    /// use tower_triage::{QueueConfig, QueueLayer};
    ///
    /// /// The claims of a token that a layer in front has verified.
    /// #[derive(Clone)]
    /// struct Claims {
    ///     team: String,
    ///     max_level: String,
    /// }
    ///
    /// let queue = QueueLayer::new(QueueConfig::new(8)).classify(|request, context| {
    ///     let mut ticket = context.ticket_from_headers(request.headers());
    ///     let claims = request.extensions().get::<Claims>().expect("set by the layer in front");
    ///     ticket.tenant = claims.team.as_str().into();
    ///     ticket.priority = ticket.priority.min(context.priority(&claims.max_level));
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

    /// Reads tickets with a [`Classify`](crate::queue::Classify) instead of from headers.
    #[must_use]
    pub fn classify_with<N>(self, classify: N) -> QueueLayer<Http<N, M, E>> {
        self.map_protocol(|http| Http {
            classify,
            mode: http.mode,
            exempt: http.exempt,
            tells_queue_time: http.tells_queue_time,
            shares_slots: http.shares_slots,
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
    /// With [`Overflow::Backpressure`](crate::queue::Overflow::Backpressure), `poll_ready` waits for room before there is a
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
            shares_slots: http.shares_slots,
        })
    }

    /// Tells `observer` what becomes of each request: admitted, rejected or abandoned, and how an admitted one ended.
    ///
    /// Call it last, because it returns a layer of another type; only
    /// [`map_response_body`](crate::queue::ObservedLayer::map_response_body) comes after it. The bodies of the responses are
    /// [`ObservedBody`](crate::queue::ObservedBody). Exempt requests are not observed. Layers without an observer pay nothing for
    /// it.
    ///
    /// The service has to be HTTP, because the observer reads the [head](RequestHead) of each request. A layer around a
    /// [`plain`](QueueLayer::plain) queue finds the reason of a rejection in the [`QueueError`](crate::queue::QueueError).
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
    /// original one or reads it to its end. The [time of the wait](crate::queue::QueueResponseBody::queue_time) and the
    /// [reason of a rejection](crate::queue::QueueResponseBody::reason) are known to `map` only. With
    /// [`status_stream`](QueueLayer::status_stream) they are also extensions of the response.
    #[must_use]
    pub fn map_response_body<B, N, F>(self, map: F) -> MapResponseBodyLayer<Self, F>
    where
        F: Fn(QueueResponseBody<B>) -> N + Clone,
    {
        MapResponseBodyLayer::new(self, map)
    }

    /// Reads the bodies of requests that wait over HTTP/2 into `memory`, so that they do not hold up the other requests of their
    /// connection.
    ///
    /// Without it, the bodies of waiting requests use up the flow-control window of their connection, so that the requests
    /// that have the slots can't read their own. With the defaults of hyper, axum and tonic, that is 1 MiB. Either give the
    /// connection a larger window or use this method; [`ReadAheadLayer`] has the lines for both.
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use tower_triage::QueueLayer;
    /// use tower_triage::queue::BodyMemory;
    ///
    /// let queue = QueueLayer::limit(8).read_ahead(BodyMemory::new(64 << 20));
    /// let app: Router = Router::new()
    ///     .route("/", post(|body: String| async { body }))
    ///     .layer(queue);
    /// ```
    ///
    /// Call it last, because it returns a layer of another type. Around a layer of another type, for example one with an observer,
    /// use [`ReadAheadLayer::new`].
    #[must_use]
    pub fn read_ahead(self, memory: BodyMemory) -> ReadAheadLayer<Self> {
        ReadAheadLayer::new(self, memory)
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
    /// of this layer has no effect on them. With [`Overflow::Backpressure`](crate::queue::Overflow::Backpressure), calls are
    /// rejected as with [`Overflow::Reject`](crate::queue::Overflow::Reject), because `poll_ready` does not know the key. A
    /// request that finds a slot free pays for a look at its key, and no more.
    #[must_use]
    pub fn per_key<B, F>(self, key: F) -> PerKeyLayer<Http<K, M, E>, F>
    where
        Http<K, M, E>: Clone,
        F: Fn(&Request<B>) -> &str,
    {
        PerKeyLayer::new(&self, key)
    }

    /// Tells the inner service the time that each request waited, as a [`QueueTime`](crate::queue::QueueTime) among the
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

    /// Gives the inner service a hold on the slot of each request, as a [`HeldSlot`](crate::gate::HeldSlot) among the
    /// request's extensions. Off by default.
    ///
    /// Blocking work that a handler starts goes on after the client has hung up. With the hold it keeps its slot for as
    /// long, so that the limit holds for the work, too:
    ///
    /// ```
    /// use axum::{Extension, Router, routing::get};
    /// use tower_triage::QueueLayer;
    /// use tower_triage::gate::HeldSlot;
    ///
    /// async fn handler(Extension(slot): Extension<HeldSlot>) -> String {
    ///     let work = tokio::task::spawn_blocking(move || {
    ///         let rows = 42; // a query that nothing interrupts
    ///         drop(slot);
    ///         rows
    ///     });
    ///     work.await.map_or_else(|error| error.to_string(), |rows| rows.to_string())
    /// }
    /// let queue = QueueLayer::limit(8).held_slot_extension();
    /// let app: Router = Router::new().route("/", get(handler)).layer(queue);
    /// ```
    #[must_use]
    pub fn held_slot_extension(mut self) -> Self {
        self.protocol.shares_slots = true;
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
            shares_slots: http.shares_slots,
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
    /// would hold memory and a connection without a limit. A future is therefore [refused](crate::queue::RejectAnswer) by the
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
