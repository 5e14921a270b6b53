//! Routed requests that are rejected and keep their places.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tower_triage::QueueConfig;
use tower_triage::queue::RetryPlaces;
use tower_triage::rejection::RetryAfter;
use tower_triage::route::RoutingConfig;

use super::support::{Call, TestRouter, endpoint, header, settle, status};

fn named(name: &'static str) -> Request<Full<Bytes>> {
    let request = Request::post("/").header("x-name", name);
    request.body(r#"{"model": "m"}"#.into()).unwrap()
}

/// Two endpoints whose only slots are taken, a request that waits, and one that was rejected and may come back.
struct Rejected {
    router: TestRouter,
    queue: QueueConfig,
    at_a: Call,
    at_b: Call,
    again: Request<Full<Bytes>>,
}

impl Rejected {
    async fn new() -> Self {
        let queue = QueueConfig::default()
            .max_size(1)
            .retry_after(RetryAfter::fixed(2))
            .retry_places(RetryPlaces::random());
        let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])];
        let mut router = TestRouter::with_queue(endpoints, RoutingConfig::default(), queue.clone());
        router.send(named("at a"));
        let at_a = router.call().await;
        router.send(named("at b"));
        let at_b = router.call().await;
        router.send(named("waits"));
        settle().await;
        let rejected = router.send(named("again")).await.unwrap();
        assert_eq!(rejected.status(), 503);
        let token = header(&rejected, "x-triage-place").parse().unwrap();
        let mut again = named("again");
        again.headers_mut().insert("x-triage-place", token);
        Self {
            router,
            queue,
            at_a,
            at_b,
            again,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_obeyed_goes_before_what_came_meanwhile() {
    let Rejected {
        mut router,
        queue,
        at_a,
        at_b,
        again,
    } = Rejected::new().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    at_a.ok();
    let waited = router.call().await;
    router.send(named("other"));
    router.handle.reconfigure(queue.max_size(9)).unwrap();
    tokio::time::advance(Duration::from_millis(1_100)).await;
    let answered = router.send(again);
    settle().await;
    tokio::time::advance(Duration::from_secs(3)).await;
    waited.ok();
    let first = router.call().await;
    assert_eq!(first.headers["x-name"], "again");

    // A failure is tried elsewhere, and its wait is that since its return.
    first.answer(status(503));
    let other = router.call().await;
    assert_eq!(other.headers["x-name"], "other");
    at_b.ok();
    let retried = router.call().await;
    assert_eq!((retried.endpoint(), retried.decision.retries), ("b", 1));
    retried.ok();
    let answer = answered.await.unwrap();
    assert_eq!(header(&answer, "server-timing"), "queue;dur=3000");
}

#[tokio::test(start_paused = true)]
async fn a_retry_elsewhere_keeps_the_place_of_its_client() {
    let Rejected {
        mut router,
        queue,
        at_a,
        at_b,
        again,
    } = Rejected::new().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    router.handle.reconfigure(queue.max_size(9)).unwrap();
    let _meanwhile = [router.send(named("second")), router.send(named("third"))];
    settle().await;
    tokio::time::advance(Duration::from_millis(1_100)).await;
    let answered = router.send(again);
    settle().await;
    at_a.ok();
    router.call().await.ok(); // what waited from the beginning
    let failed = router.call().await;
    assert_eq!(failed.headers["x-name"], "again");

    tokio::time::advance(Duration::from_secs(4)).await;
    failed.answer(status(503));
    let second = router.call().await;
    assert_eq!(second.headers["x-name"], "second");
    tokio::time::advance(Duration::from_secs(2)).await;
    at_b.ok();
    let retried = router.call().await;
    assert_eq!(retried.headers["x-name"], "again");
    assert_eq!((retried.endpoint(), retried.decision.retries), ("b", 1));
    retried.ok();
    let answer = answered.await.unwrap();
    assert_eq!(header(&answer, "server-timing"), "queue;dur=2000");
}
