//! Retries: place, deadline, budget and decision of a request that is tried again.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderName, Request, Response};
use http_body_util::{Empty, Full};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage::endpoints::{Decision, Registry};
use tower_triage::queue::{QueueTime, Streaming};
use tower_triage::route::{RouteBody, RoutingConfig};
use tower_triage::{QueueConfig, RouteLayer};

use super::support::{TestRouter, endpoint, header, settle, status, two};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_retry_keeps_its_place_with_or_without_server_timing() {
    for timed in [true, false] {
        let mut queue = QueueConfig::default();
        queue.server_timing = timed;
        let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])];
        let mut router = TestRouter::with_queue(endpoints, RoutingConfig::default(), queue);
        router.ask("m");
        let at_a = router.call().await;
        router.ask("m");
        let at_b = router.call().await;
        router.ask("m");
        settle().await;
        tokio::time::advance(SECOND).await;
        let others = [router.ask("m"), router.ask("m")];
        settle().await;
        tokio::time::advance(SECOND).await;
        at_a.ok();
        router.call().await.answer(status(503));
        let other = router.call().await;
        assert_eq!((other.endpoint(), other.decision.retries), ("a", 0));
        at_b.ok();
        assert_eq!(router.call().await.decision.retries, 1, "timed: {timed}");
        assert!(others.iter().all(|other| !other.is_finished()));
    }
}

#[tokio::test(start_paused = true)]
async fn server_timing_sums_the_waits_of_all_attempts() {
    for waits_again in [false, true] {
        let mut router = two();
        router.ask("m");
        let at_a = router.call().await;
        router.ask("m");
        let at_b = router.call().await;
        let asked = router.ask("m");
        settle().await;
        tokio::time::advance(SECOND).await;
        at_a.ok();
        let call = router.call().await;
        tokio::time::advance(5 * SECOND).await;
        if waits_again {
            call.answer(status(503));
            assert!(router.settled().await.is_none());
            tokio::time::advance(2 * SECOND).await;
            at_b.ok();
        } else {
            at_b.ok();
            settle().await;
            call.answer(status(503));
        }
        router.call().await.ok();
        let answer = asked.await.unwrap();
        let waited = if waits_again { 3000 } else { 1000 };
        let timing = format!("queue;dur={waited}");
        assert!(
            header(&answer, "server-timing").starts_with(&timing),
            "{answer:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_retry_that_got_no_slot_counts() {
    for waits_first in [false, true] {
        let mut router = two();
        router.ask("m");
        let at_a = router.call().await;
        let mut busy = vec![];
        if waits_first {
            router.ask("m");
            busy.push(router.call().await);
        }
        let asked = router.ask("m");
        settle().await;
        tokio::time::advance(SECOND).await;
        if waits_first {
            at_a.ok();
        } else {
            busy.push(at_a);
        }
        let call = router.call().await;
        tokio::time::advance(5 * SECOND).await;
        call.answer(status(503));
        assert!(router.settled().await.is_none());
        tokio::time::advance(2 * SECOND).await;
        router.handle.close();
        let answer = asked.await.unwrap();
        assert_eq!(header(&answer, "x-triage-endpoint").len(), 1);
        let waited = if waits_first { 3 } else { 2 } * SECOND;
        assert_eq!(answer.extensions().get(), Some(&QueueTime(waited)));
        let timing = format!("queue;dur={}", waited.as_millis());
        assert_eq!(header(&answer, "server-timing"), timing);
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_is_retried_after_its_deadline() {
    for (seconds, retried) in [(1, true), (3, false)] {
        let mut router = two();
        let request = Request::post("/")
            .header("x-request-timeout", "2")
            .body(Full::from(r#"{"model":"m"}"#))
            .unwrap();
        let asked = router.send(request);
        let call = router.call().await;
        tokio::time::advance(seconds * SECOND).await;
        call.answer(status(503));
        match router.settled().await {
            Some(again) => again.ok(),
            None => assert_eq!(asked.await.unwrap().status(), 503),
        }
        assert_eq!(
            router.in_flight()["a"] + router.in_flight()["b"] > 0,
            retried
        );
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_requests_pay_for_no_retries() {
    let mut routing = RoutingConfig::default().max_retries(1);
    routing.eject_after = 0;
    let several = [endpoint("a", 50, &["m"]), endpoint("b", 50, &["m"])];
    let mut router = TestRouter::new(several, routing);
    for _ in 0..1_000 {
        assert_eq!(router.ask("unknown").await.unwrap().status(), 404);
    }
    assert_eq!(retries(&mut router, 200).await, 140); // the reserve of 100, and 0.2 of the 200
}

#[tokio::test(start_paused = true)]
async fn changing_endpoints_keeps_the_retry_budget() {
    let mut routing = RoutingConfig::default().max_retries(1);
    routing.eject_after = 0;
    routing.retry_share = 0.0;
    let several = [endpoint("a", 50, &["m"]), endpoint("b", 50, &["m"])];
    let mut router = TestRouter::new(several, routing);
    let mut tried_again = 0;
    for slots in 51..=55 {
        tried_again += retries(&mut router, 100).await;
        let change = router
            .handle
            .change_endpoints(|all| all[0].max_concurrent = slots);
        change.unwrap();
    }
    assert_eq!(tried_again, 100);
}

#[tokio::test(start_paused = true)]
async fn a_failing_model_takes_no_retry_from_another() {
    let mut routing = RoutingConfig::default().max_retries(1);
    routing.eject_after = 0;
    routing.retry_share = 0.0;
    let several = [
        endpoint("a", 50, &["m", "n"]),
        endpoint("b", 50, &["m", "n"]),
    ];
    let mut router = TestRouter::new(several, routing);
    assert_eq!(retries_of("m", &mut router, 200).await, 100);
    assert_eq!(retries_of("n", &mut router, 200).await, 100);
}

/// The number of retries if this many requests for `m` fail, one after the other.
async fn retries(router: &mut TestRouter, requests: u32) -> u32 {
    retries_of("m", router, requests).await
}

async fn retries_of(model: &str, router: &mut TestRouter, requests: u32) -> u32 {
    let mut retries = 0;
    for _ in 0..requests {
        let asked = router.ask(model);
        while let Some(call) = router.settled().await {
            retries += call.decision.retries;
            call.answer(status(503));
        }
        asked.await.unwrap();
    }
    retries
}

#[tokio::test(start_paused = true)]
async fn closing_the_router_answers_waiting_retries_at_once() {
    let mut router = two();
    router.ask("m");
    let failing = router.call().await;
    router.ask("m");
    let _at_b = router.call().await;
    let asked = router.ask("m");
    settle().await;
    failing.ok();
    router.call().await.answer(status(503));
    assert!(router.settled().await.is_none());
    assert_eq!(router.handle.status().depth, 1);
    router.handle.close();
    assert_eq!(asked.await.unwrap().status(), 503);
    assert_eq!(router.handle.status().depth, 0);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_retry_does_not_wait_if_rejected() {
    let queue = QueueConfig::default().streaming(Streaming::Reject);
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])];
    let mut router = TestRouter::with_queue(endpoints, RoutingConfig::default(), queue);
    let streamed = |router: &TestRouter| {
        let body = r#"{"model":"m","stream":true}"#;
        router.send(Request::new(Full::from(body)))
    };
    let asked = streamed(&router);
    let failing = router.call().await;
    let _other = streamed(&router);
    let _busy = router.call().await;
    failing.answer(status(503));
    let answer = asked.await.unwrap();
    assert_eq!(header(&answer, "x-triage-endpoint"), "a");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_mid_retry_leaves_nothing_behind() {
    for when in ["called", "polled"] {
        let endpoints = vec![endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])];
        let layer = RouteLayer::builder(Registry::new(endpoints).unwrap()).build();
        let inner = service_fn(move |request: Request<RouteBody<Full<Bytes>>>| {
            let retries = request.extensions().get::<Decision>().unwrap().retries;
            assert!(retries == 0 || when == "polled");
            async move {
                assert_eq!(retries, 0);
                Ok::<_, Infallible>(status(503))
            }
        });
        let request = Request::new(Full::from(r#"{"model":"m"}"#));
        let answer = AssertUnwindSafe(layer.layer(inner).oneshot(request));
        assert!(answer.catch_unwind().await.is_err());
        let status = layer.handle().status();
        assert_eq!((status.running, status.depth), (0, 0), "{when}");
    }
}

/// Ready for the first call only.
#[derive(Clone)]
struct Once {
    calls: std::sync::Arc<std::sync::atomic::AtomicU32>,
}

impl Service<Request<RouteBody<Full<Bytes>>>> for Once {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match self.calls.load(std::sync::atomic::Ordering::SeqCst) {
            0 => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    fn call(&mut self, _: Request<RouteBody<Full<Bytes>>>) -> Self::Future {
        self.calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::future::ready(Ok(status(503)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_never_ready_gets_the_first_failure() {
    let other = endpoint("b", 1, &["m"]).priority(90);
    let registry = Registry::new(vec![endpoint("a", 1, &["m"]), other]).unwrap();
    let layer = RouteLayer::builder(registry).build();
    let once = Once {
        calls: Default::default(),
    };
    let request = Request::new(Full::from(r#"{"model":"m"}"#));
    let answer = layer.layer(once).oneshot(request).await.unwrap();
    assert_eq!(header(&answer, "x-triage-endpoint"), "a");
    assert_eq!(layer.handle().status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_bodyless_request_is_retried_from_any_source() {
    let other = endpoint("b", 1, &["m"]).priority(90);
    let endpoints = vec![endpoint("a", 1, &["m"]), other];
    let router = RouteLayer::builder(Registry::new(endpoints).unwrap())
        .routing(RoutingConfig::default().alias("alias", "m"))
        .demand_from_header(HeaderName::from_static("x-service"));
    let inner = service_fn(|request: Request<RouteBody<Empty<Bytes>>>| async move {
        assert!(http_body::Body::is_end_stream(request.body()));
        let decision = request.extensions().get::<Decision>().unwrap();
        Ok::<_, Infallible>(status(if decision.retries == 0 { 503 } else { 200 }))
    });
    let request = Request::get("/")
        .header("x-service", "alias")
        .body(Empty::new())
        .unwrap();
    let answer = router.build().layer(inner).oneshot(request).await.unwrap();
    assert_eq!(header(&answer, "x-triage-endpoint"), "b");
}

#[tokio::test(start_paused = true)]
async fn each_attempt_gets_only_its_own_decision() {
    let several = ["a", "b", "c", "d"].map(|name| endpoint(name, 1, &["m"]));
    let mut router = TestRouter::new(several, RoutingConfig::default().max_retries(3));
    let asked = router.ask("m");
    for retries in 0..=3 {
        let call = router.call().await;
        assert_eq!(call.decision.retries, retries);
        assert_eq!(router.in_flight().values().sum::<u32>(), 1);
        call.answer(status(502));
    }
    let answer = asked.await.unwrap();
    assert_eq!(answer.extensions().get::<Decision>().unwrap().retries, 3);
}
