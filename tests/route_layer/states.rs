//! Sequences of checks and failures at one endpoint.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage::endpoints::{Decision, Endpoint, Registry};
use tower_triage::route::{RouteBody, RoutingConfig};
use tower_triage::{QueueConfig, RouteLayer};

use super::support::{TestRouter, endpoint, fail, settle, status};

const SECOND: Duration = Duration::from_secs(1);

/// A router in which `b` is ejected. `smart` chooses `b` only while `a` is busy.
async fn one_ejected() -> TestRouter {
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default().max_retries(0));
    // Known to be healthy, and busy below.
    router.handle.set_healthy(&router.endpoint("a"), true);
    router.ask("m");
    let busy = router.call().await;
    assert_eq!(busy.endpoint(), "a");
    fail(&mut router, "b", 5, || status(503)).await;
    busy.ok();
    settle().await;
    assert!(!router.endpoint("b").healthy());
    router
}

async fn ejection_ends() {
    tokio::time::advance(SECOND).await;
    settle().await;
}

/// One more request, which `name` serves.
async fn served_by(router: &mut TestRouter, name: &str) {
    let asked = router.ask("m");
    let call = router.call().await;
    assert_eq!(call.endpoint(), name);
    call.ok();
    asked.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_half_open_endpoint_is_probed_once_up() {
    let mut router = one_ejected().await;
    router.handle.set_healthy(&router.endpoint("b"), false);
    ejection_ends().await;
    served_by(&mut router, "a").await;
    router.handle.set_healthy(&router.endpoint("b"), true);
    served_by(&mut router, "b").await;
    assert!(router.endpoint("b").healthy());
}

#[tokio::test(start_paused = true)]
async fn a_probe_returned_meanwhile_goes_to_another_request() {
    let mut router = one_ejected().await;
    ejection_ends().await;
    let probe = router.ask("m");
    let probing = router.call().await;
    assert_eq!(probing.endpoint(), "b");
    served_by(&mut router, "a").await;
    probe.abort();
    settle().await;
    assert!(probing.is_over());
    served_by(&mut router, "b").await;
}

/// A body of one frame, then an error.
fn broken_off() -> Response<BoxBody<Bytes, std::io::Error>> {
    let frames = [
        Ok(Frame::data(Bytes::from("half"))),
        Err(std::io::Error::other("the line is dead")),
    ];
    Response::new(BoxBody::new(StreamBody::new(stream::iter(frames))))
}

#[tokio::test(start_paused = true)]
async fn broken_responses_eject_all_but_the_last_endpoint() {
    for (others, healthy) in [(0, true), (1, false)] {
        let mut endpoints = vec![endpoint("a", 1, &["m"])];
        endpoints.extend((0..others).map(|_| endpoint("b", 1, &["m"]).priority(90)));
        let layer = RouteLayer::builder(Registry::new(endpoints).unwrap()).build();
        let inner =
            service_fn(
                async |_: Request<RouteBody<Full<Bytes>>>| Ok::<_, Infallible>(broken_off()),
            );
        for _ in 0..5 {
            let request = Request::new(Full::from(r#"{"model":"m"}"#));
            let answer = layer.layer(inner).oneshot(request).await.unwrap();
            assert_eq!(answer.headers()["x-triage-endpoint"], "a");
            assert!(answer.into_body().collect().await.is_err());
        }
        assert_eq!(layer.handle().endpoints()[0].healthy(), healthy);
    }
}

#[test]
fn without_a_clock_no_endpoint_is_ejected() {
    let layer = RouteLayer::builder(
        Registry::new(vec![endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])]).unwrap(),
    )
    .build();
    let inner =
        service_fn(async |_: Request<RouteBody<Full<Bytes>>>| Ok::<_, Infallible>(status(500)));
    for _ in 0..20 {
        let request = Request::new(Full::from(r#"{"model":"m"}"#));
        let answer = layer.layer(inner).oneshot(request).now_or_never();
        assert_eq!(answer.unwrap().unwrap().status(), 500);
    }
    let endpoints = layer.handle().endpoints();
    assert!(endpoints.iter().all(|endpoint| endpoint.healthy()));
}

/// Calls go through while it is open.
#[derive(Clone)]
struct Door<S> {
    open: Arc<AtomicBool>,
    inner: S,
}

impl<S: Service<R>, R> Service<R> for Door<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        match self.open.load(SeqCst) {
            true => self.inner.poll_ready(cx),
            false => Poll::Pending,
        }
    }

    fn call(&mut self, request: R) -> S::Future {
        self.inner.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_a_retry_returns_goes_to_a_waiter() {
    let mut routing = RoutingConfig::default();
    routing.eject_after = 1;
    let other = endpoint("b", 1, &["m"]).priority(90);
    let endpoints = vec![endpoint("a", 1, &["m"]), other];
    let router = RouteLayer::builder(Registry::new(endpoints).unwrap()).routing(routing);
    let layer = router
        .queue(QueueConfig::default().max_wait(5 * SECOND))
        .build();
    let handle = layer.handle();
    handle.set_healthy(&handle.endpoints()[0], true);
    let open = Arc::new(AtomicBool::new(true));
    // `b` fails at once, `a` after two seconds.
    let inner = service_fn(async |request: Request<RouteBody<Full<Bytes>>>| {
        let decision = request.extensions().get::<Decision>().unwrap();
        if decision.endpoint.name() == "b" {
            return Ok::<_, Infallible>(status(500));
        }
        tokio::time::sleep(2 * SECOND).await;
        let mut answer = status(503);
        *answer.body_mut() = Full::from("never read");
        Ok(answer)
    });
    let route = layer.layer(Door {
        open: Arc::clone(&open),
        inner,
    });
    let ask = || {
        let request = Request::new(Full::from(r#"{"model":"m"}"#));
        tokio::spawn(route.clone().oneshot(request))
    };
    let busy = |at: usize| layer.handle().endpoints()[at].in_flight();

    let fails_at_a = ask();
    settle().await;
    assert_eq!(ask().await.unwrap().unwrap().status(), 500);
    open.store(false, SeqCst);
    ejection_ends().await;
    ejection_ends().await;
    assert_eq!(
        (busy(0), busy(1)),
        (0, 1),
        "its retry has the slot of the probe"
    );
    let (_at_a, _waits) = (ask(), ask());
    settle().await;
    assert_eq!(layer.handle().status().depth, 1);
    let _answer = fails_at_a.await.unwrap();
    settle().await;
    assert_eq!(layer.handle().status().depth, 0);
    assert_eq!((busy(0), busy(1)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_ejected_endpoint_is_probed_with_its_new_models() {
    let mut router = one_ejected().await;
    let with_n = |endpoints: &mut Vec<Endpoint>| {
        *endpoints = vec![endpoint("a", 1, &["n"]), endpoint("b", 1, &["n"])];
    };
    router.handle.change_endpoints(with_n).unwrap();
    let asked = router.ask("n");
    router.call().await.ok();
    asked.await.unwrap();
    ejection_ends().await;
    router.ask("n");
    assert_eq!(router.call().await.endpoint(), "b");
}
