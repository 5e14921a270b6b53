//! A router in front of a service that the test controls, on Tokio's paused clock.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::sync::{mpsc, oneshot};
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::endpoints::{
    Candidates, Choice, Decision, Endpoint, EndpointRef, Model, Registry, Strategy,
};
use tower_triage::gate::PermitBody;
use tower_triage::route::{
    RouteBody, RouteLayerBuilder, RouteResponseBody, RoutingConfig, StrategyChoice,
};
use tower_triage::{QueueConfig, RouteHandle, RouteLayer};

pub(crate) type Answer = Response<Full<Bytes>>;
type Permit = tower_triage::gate::Permit<tower_triage::endpoints::Endpoints>;
pub(crate) type Routed = Response<PermitBody<RouteResponseBody<Full<Bytes>>, Permit>>;
type Inner = BoxCloneSyncService<Request<RouteBody<Full<Bytes>>>, Answer, Infallible>;

/// A bound on the paused clock: a test that waits longer would wait for ever.
const HANG_GUARD: std::time::Duration = std::time::Duration::from_secs(86_400);

/// An endpoint that serves `models`.
pub(crate) fn endpoint(name: &str, slots: u32, models: &[&str]) -> Endpoint {
    let url = http::Uri::from_static("http://127.0.0.1:9");
    let empty = Endpoint::new(name, url).max_concurrent(slots);
    models
        .iter()
        .fold(empty, |endpoint, &model| endpoint.model(Model::new(model)))
}

/// A call of the inner service, and the way to answer it.
pub(crate) struct Call {
    pub(crate) decision: Decision,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
    answer: oneshot::Sender<Answer>,
}

impl Call {
    pub(crate) fn endpoint(&self) -> &str {
        self.decision.endpoint.name()
    }

    pub(crate) fn answer(self, answer: Answer) {
        let _ = self.answer.send(answer); // its caller may be gone
    }

    pub(crate) fn ok(self) {
        self.answer(Response::new("ok".into()));
    }

    /// Whether its caller has gone.
    pub(crate) fn is_over(&self) -> bool {
        self.answer.is_closed()
    }
}

/// The first endpoint that is free, where `smart` would draw one of several equal ones.
#[derive(Debug)]
struct First;

impl Strategy for First {
    fn name(&self) -> &'static str {
        "first"
    }

    fn reads_prefixes(&self) -> bool {
        false
    }

    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        candidates.free().next().map(Choice::new)
    }
}

/// A router, and the calls that reach its inner service.
pub(crate) struct TestRouter {
    pub(crate) route: tower_triage::Route<Inner>,
    pub(crate) handle: RouteHandle,
    calls: mpsc::UnboundedReceiver<Call>,
}

impl TestRouter {
    pub(crate) fn new(endpoints: impl Into<Vec<Endpoint>>, routing: RoutingConfig) -> Self {
        Self::with_queue(endpoints, routing, QueueConfig::default())
    }

    /// A router that prefers the first endpoint that is free, unless the test chose a strategy.
    pub(crate) fn with_queue(
        endpoints: impl Into<Vec<Endpoint>>,
        mut routing: RoutingConfig,
        queue: QueueConfig,
    ) -> Self {
        let endpoints = endpoints.into();
        if endpoints.len() > 1 && matches!(routing.strategy, StrategyChoice::Smart) {
            routing.strategy = StrategyChoice::Custom(Arc::new(First));
        }
        let registry = Registry::new(endpoints).unwrap();
        let builder = RouteLayer::builder(registry).routing(routing).queue(queue);
        Self::of(builder)
    }

    pub(crate) fn of(builder: RouteLayerBuilder) -> Self {
        let layer = builder.build();
        let (inner, calls) = inner();
        Self {
            handle: layer.handle(),
            route: layer.layer(inner),
            calls,
        }
    }

    /// Sends a request for `model`.
    pub(crate) fn ask(&self, model: &str) -> tokio::task::JoinHandle<Routed> {
        let body = serde_json::json!({ "model": model }).to_string();
        self.send(Request::new(Full::from(body)))
    }

    pub(crate) fn send(&self, request: Request<Full<Bytes>>) -> tokio::task::JoinHandle<Routed> {
        let route = self.route.clone();
        tokio::spawn(async move { route.oneshot(request).await.unwrap() })
    }

    /// The next call that reaches the inner service.
    pub(crate) async fn call(&mut self) -> Call {
        let call = tokio::time::timeout(HANG_GUARD, self.calls.recv()).await;
        call.expect("no call").expect("the router is there")
    }

    /// The call that has reached the inner service by now, if any.
    pub(crate) async fn settled(&mut self) -> Option<Call> {
        settle().await;
        self.calls.try_recv().ok()
    }

    pub(crate) fn endpoint(&self, name: &str) -> EndpointRef {
        let endpoints = self.handle.endpoints();
        let named = endpoints.iter().find(|endpoint| endpoint.name() == name);
        named.expect("an endpoint of this name").clone()
    }

    /// How many requests each endpoint serves.
    pub(crate) fn in_flight(&self) -> HashMap<String, u32> {
        let endpoints = self.handle.endpoints();
        let busy = endpoints.iter();
        busy.map(|endpoint| (endpoint.name().to_owned(), endpoint.in_flight()))
            .collect()
    }
}

/// Two endpoints of one slot that serve `m`.
pub(crate) fn two() -> TestRouter {
    two_routed(RoutingConfig::default())
}

pub(crate) fn two_routed(routing: RoutingConfig) -> TestRouter {
    TestRouter::new(
        [endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])],
        routing,
    )
}

/// Fails `times` requests at `name`; the others succeed.
pub(crate) async fn fail(
    router: &mut TestRouter,
    name: &str,
    times: usize,
    answer: impl Fn() -> Answer,
) {
    for _ in 0..times {
        let asked = router.ask("m");
        let mut call = router.call().await;
        while call.endpoint() != name {
            call.ok();
            call = router.call().await;
        }
        call.answer(answer());
        if let Some(retried) = router.settled().await {
            retried.ok();
        }
        asked.await.unwrap();
    }
}

/// Lets every task run as far as it can.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// A service that passes its calls to the test, and their receiver.
fn inner() -> (Inner, mpsc::UnboundedReceiver<Call>) {
    let (sender, calls) = mpsc::unbounded_channel();
    let sender = Arc::new(Mutex::new(sender));
    let service = service_fn(move |request: Request<RouteBody<Full<Bytes>>>| {
        let sender = sender.lock().unwrap().clone();
        let answered: BoxFuture<'static, Result<Answer, Infallible>> = Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let (answer, answered) = oneshot::channel();
            let call = Call {
                decision: head.extensions.get::<Decision>().unwrap().clone(),
                headers: head.headers,
                body: String::from_utf8(body.to_vec()).unwrap(),
                answer,
            };
            sender.send(call).ok();
            Ok(answered.await.unwrap_or_else(|_| status(500)))
        });
        answered
    });
    (BoxCloneSyncService::new(service), calls)
}

/// An empty answer of this status.
pub(crate) fn status(status: u16) -> Answer {
    let mut answer = Response::new(Full::default());
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer
}

pub(crate) fn header<'a>(answer: &'a Routed, name: &str) -> &'a str {
    let value = answer.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

/// The `code` of a rejection.
pub(crate) async fn code(answer: Routed) -> String {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    body["error"]["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
