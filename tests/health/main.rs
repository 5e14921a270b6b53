//! Health checks over real sockets, and what they change for waiting requests.

#[path = "../support/http2_frames.rs"]
mod http2_frames;
#[path = "../support/log.rs"]
mod log;
#[path = "../support/upstream.rs"]
mod upstream;

mod busy;
mod changes;
mod engine_load;
mod http2;
mod logs;
mod results;
mod spread;
#[cfg(feature = "tls")]
mod tls;
mod waiting;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, Response};
use http_body_util::{BodyExt, Empty};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::endpoints::{
    Decision, Endpoint, EndpointRef, HealthCheck, Model, NoResponse, Registry,
};
use tower_triage::route::{RouteBody, RouteHandle, RoutingConfig};
use tower_triage::upstream::{Forward, HealthChecks};
use tower_triage::{QueueConfig, RouteLayer};
use upstream::{Connection, Upstream};

const SOON: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

const WELL: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const ILL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

const MODEL: HeaderName = HeaderName::from_static("x-model");

/// One check, and no more.
fn once() -> HealthCheck {
    HealthCheck::default().interval(HOUR)
}

/// Frequent checks. A result has been reported when the next check arrives.
fn often() -> HealthCheck {
    HealthCheck::default().interval(Duration::from_millis(1))
}

/// One slot, for model `m`.
fn endpoint(name: &str, upstream: &Upstream) -> Endpoint {
    let url = format!("http://{}", upstream.addr()).parse().unwrap();
    Endpoint::new(name, url)
        .max_concurrent(1)
        .model(Model::new("m"))
}

/// A router whose endpoints answer a request when `go` has a permit for it. Only checks use the network.
struct TestRouter {
    layer: RouteLayer,
    handle: RouteHandle,
    go: Arc<Semaphore>,
}

impl TestRouter {
    fn of(endpoints: impl Into<Vec<Endpoint>>) -> Self {
        Self::routed(endpoints, RoutingConfig::default())
    }

    fn routed(endpoints: impl Into<Vec<Endpoint>>, routing: RoutingConfig) -> Self {
        let router = RouteLayer::builder(Registry::new(endpoints.into()).unwrap())
            .routing(routing)
            .queue(QueueConfig::default().max_wait(HOUR))
            .demand_from_header(MODEL);
        let layer = router.build();
        Self {
            handle: layer.handle(),
            layer,
            go: Arc::new(Semaphore::new(0)),
        }
    }

    fn checks(&self) -> HealthChecks {
        Forward::<Empty<Bytes>>::new().checks(&self.handle)
    }

    fn endpoint(&self, name: &str) -> EndpointRef {
        let endpoints = self.handle.endpoints();
        let mut named = endpoints.iter().filter(|endpoint| endpoint.name() == name);
        named.next().unwrap().clone()
    }

    /// Returns when a request for `model` runs or waits.
    async fn enter(&self, model: &'static str) -> JoinHandle<(u16, String)> {
        let inside = || {
            let status = self.handle.status();
            status.running + status.depth
        };
        let before = inside();
        let request = self.ask(model);
        until(|| inside() > before).await;
        request
    }

    /// A request for `model`: its status, and the endpoint that served it or why none did.
    fn ask(&self, model: &'static str) -> JoinHandle<(u16, String)> {
        let go = self.go.clone();
        let inner = service_fn(move |request: Request<RouteBody<Empty<Bytes>>>| {
            let go = go.clone();
            async move {
                go.acquire().await.unwrap().forget();
                let decision: &Decision = request.extensions().get().unwrap();
                let mut response = Response::new(decision.endpoint.name().to_owned());
                if decision.model.as_ref() == "breaks" {
                    response.extensions_mut().insert(NoResponse::Reset);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let request = Request::get("/").header(MODEL, model);
        let answer = self
            .layer
            .layer(inner)
            .oneshot(request.body(Empty::new()).unwrap());
        tokio::spawn(async {
            let (head, body) = answer.await.unwrap().into_parts();
            let text = body.collect().await.unwrap().to_bytes();
            (
                head.status.as_u16(),
                String::from_utf8(text.into()).unwrap(),
            )
        })
    }
}

/// The next check, and its head.
async fn check_at(upstream: &Upstream) -> (Connection, String) {
    let check = async {
        let mut connection = upstream.accept().await;
        let (head, _) = connection.request().await;
        (connection, head)
    };
    timeout(SOON, check).await.expect("a check")
}

async fn answer(upstream: &Upstream, answer: &str) {
    check_at(upstream).await.0.send(answer).await;
}

async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(SOON, wait).await.expect("that it comes to this");
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.expect("an end in time")
}
