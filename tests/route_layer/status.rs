//! Routed requests that are told their position while they wait.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower_triage::QueueConfig;
use tower_triage::route::RoutingConfig;

use super::support::{Answer, Routed, TestRouter, endpoint, header, settle, status, two};

const EVENTS: &str = "data: a\n\ndata: [DONE]\n\n";

/// A request for a stream of `m`, by its body, that asks for its status.
fn asks() -> Request<Full<Bytes>> {
    let body = r#"{"model": "m", "stream": true}"#;
    let request = Request::post("/v1/chat/completions").header("x-queue-status", "SSE");
    request.body(body.into()).unwrap()
}

fn events() -> Answer {
    let response = Response::builder().header("content-type", "text/event-stream");
    response.body(EVENTS.into()).unwrap()
}

async fn answered(router: &TestRouter) -> Routed {
    let sent = router.send(asks());
    settle().await;
    assert!(sent.is_finished(), "it is not answered while it waits");
    let response = sent.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(header(&response, "content-type"), "text/event-stream");
    response
}

async fn next<B: Body<Data = Bytes, Error: std::fmt::Debug> + Unpin>(body: &mut B) -> String {
    let frame = body.frame().await.expect("a frame").unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

async fn rest<B: Body<Data = Bytes, Error: std::fmt::Debug>>(body: B) -> String {
    let bytes = body.collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_hears_its_position_and_then_the_events() {
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    router.ask("m");
    let first = router.call().await;
    router.ask("m");
    settle().await;
    let mut body = answered(&router).await.into_body();
    assert!(!body.is_end_stream() && body.size_hint().exact().is_none());
    assert_eq!(next(&mut body).await, ": queue position=2\n\n");
    first.ok();
    let second = router.call().await;
    assert_eq!(next(&mut body).await, ": queue position=1\n\n");
    second.ok();
    let reading = tokio::spawn(async move { (next(&mut body).await, body) });
    let call = router.call().await;
    assert_eq!(call.headers["accept-encoding"], "identity");
    call.answer(events());
    let (said, body) = reading.await.unwrap();
    assert_eq!((said.as_str(), body.is_end_stream()), (EVENTS, true));
    assert_eq!(rest(body).await, "");
    assert_eq!(router.in_flight()["a"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_no_stream_is_not_answered_while_it_waits() {
    for queue in [
        QueueConfig::default(),
        QueueConfig::default().status_stream(false),
    ] {
        let endpoints = [endpoint("a", 1, &["m"])];
        let routing = RoutingConfig::default();
        let is_on = queue.status_stream;
        let mut router = TestRouter::with_queue(endpoints, routing, queue);
        router.ask("m");
        let _first = router.call().await;
        let mut request = asks();
        if is_on {
            *request.body_mut() = r#"{"model": "m"}"#.into();
        }
        let sent = router.send(request);
        settle().await;
        assert!(!sent.is_finished());
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejection_is_an_error_event() {
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    router.ask("m");
    let _first = router.call().await;
    let mut body = answered(&router).await.into_body();
    next(&mut body).await;
    router.handle.set_healthy(&router.endpoint("a"), false);
    let said = rest(body).await;
    let data = said.strip_prefix("event: error\ndata: ").unwrap();
    let error: serde_json::Value = serde_json::from_str(data.trim_end()).unwrap();
    assert_eq!(error["error"]["code"], "no_healthy_backend");
    assert!(error["error"]["param"].is_null());
    assert!(
        error["error"]["retry_after"]
            .as_u64()
            .is_some_and(|seconds| seconds > 0)
    );
    assert_eq!(router.handle.status().depth, 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_body_frees_the_place_and_the_slot() {
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    router.ask("m");
    let first = router.call().await;
    let waits = answered(&router).await;
    let runs = answered(&router).await;
    assert_eq!(router.handle.status().depth, 2);
    drop(waits);
    assert_eq!(router.handle.status().depth, 1);
    first.ok();
    let reading = tokio::spawn(rest(runs.into_body()));
    let call = router.call().await;
    reading.abort();
    settle().await;
    assert!(call.is_over());
    assert_eq!(router.in_flight()["a"], 0);
    assert_eq!(router.handle.status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_waits_is_part_of_the_same_response() {
    let mut router = two();
    router.ask("m");
    let at_a = router.call().await;
    router.ask("m");
    let at_b = router.call().await;
    let body = answered(&router).await.into_body();
    let reading = tokio::spawn(rest(body));
    settle().await;
    at_a.ok();
    let tried = router.call().await;
    assert_eq!(tried.endpoint(), "a");
    tried.answer(status(503));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    at_b.ok();
    let again = router.call().await;
    assert_eq!((again.endpoint(), again.decision.retries), ("b", 1));
    assert_eq!(again.headers["accept-encoding"], "identity");
    again.answer(events());
    let comment = ": queue position=1\n\n";
    let said = reading.await.unwrap();
    assert_eq!(said, format!("{comment}{comment}{EVENTS}"));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_the_first_to_wait_is_answered_meanwhile() {
    let mut router = two();
    let sent = router.send(asks());
    let tried = router.call().await;
    router.ask("m");
    let other = router.call().await;
    tried.answer(status(503));
    settle().await;
    let mut body = sent.await.unwrap().into_body();
    assert_eq!(next(&mut body).await, ": queue position=1\n\n");
    // No other endpoint serves it in time: the failure is what it hears.
    router.handle.set_healthy(&other.decision.endpoint, false);
    let said = rest(body).await;
    assert!(said.starts_with("event: error\n"), "{said}");
    assert!(said.contains("503 Service Unavailable"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_need_not_wait_asks_for_no_encoding_either() {
    let mut router = two();
    router.ask("m");
    let at_a = router.call().await;
    router.ask("m");
    let at_b = router.call().await;
    let reading = tokio::spawn(rest(answered(&router).await.into_body()));
    settle().await;
    at_a.ok();
    let tried = router.call().await;
    at_b.ok();
    settle().await;
    tried.answer(status(503));
    let again = router.call().await;
    assert_eq!(again.endpoint(), "b");
    assert_eq!(again.headers["accept-encoding"], "identity");
    again.answer(events());
    let said = reading.await.unwrap();
    assert_eq!(said, format!(": queue position=1\n\n{EVENTS}"));
}
