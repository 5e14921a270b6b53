//! Tests of retries: which failures are retried, where, and what backends and clients see of it.

use http::Response;
use http_body_util::BodyExt;
use serde_json::json;

use crate::backend::{Backend, status};
use crate::process::{Gateway, Setup};

/// A gateway that tries endpoint `first` and then `second`, without ejection.
async fn pair(routing: &str, slots: u32) -> (Gateway, Backend, Backend) {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let lines = |priority| {
        format!("priority = {priority}\nmax_concurrent = {slots}\nmodels = [{{ name = \"m\" }}]")
    };
    let setup = Setup::new()
        .routing("strategy = \"priority_only\"\neject_after = 0")
        .routing(routing)
        .backend_with("first", &first.url(), &lines(1))
        .backend_with("second", &second.url(), &lines(2));
    (setup.start().await, first, second)
}

#[tokio::test]
async fn retry_uses_another_endpoint_and_frees_the_slot() {
    let (gateway, first, second) = pair("", 1).await;
    let body = "{ \"x\": 1.0,\"model\":\"m\" }";
    for code in [502, 503, 504] {
        let ask = gateway
            .ask("m")
            .path("/v1/embeddings?y=1")
            .body(body)
            .send();
        first.next().await.respond(status(code));
        let retried = second.next().await;
        assert_eq!(retried.body, body);
        assert_eq!(retried.head.uri, "/v1/embeddings?y=1");
        assert_eq!(retried.header("content-type"), Some("application/json"));
        let state = gateway.state().await;
        assert_eq!((state.in_flight(), state.running()), (vec![0, 1], 1));
        let other = gateway.ask("m").send();
        first.next().await.answer("other");
        other.answer().await.assert_ok("other");
        retried.answer("retried");
        let answer = ask.answer().await;
        answer.assert_ok("retried");
        assert_eq!(answer.header("x-triage-endpoint"), Some("second"));
    }
    gateway.idle().await;
}

#[tokio::test]
async fn connection_reset_before_response_is_retried() {
    let (gateway, first, second) = pair("", 1).await;
    let sent = gateway.ask("m").send();
    drop(first.next().await);
    second.next().await.answer("retried");
    sent.answer().await.assert_ok("retried");
}

#[tokio::test]
async fn started_response_is_not_retried() {
    let (gateway, first, second) = pair("", 1).await;
    let asked = gateway.ask("m").open();
    let (response, stream) = tokio::join!(asked, async { first.next().await.stream() });
    stream.send("half");
    let mut body = response.into_body();
    let half = body.frame().await.unwrap().unwrap();
    assert_eq!(half.into_data().unwrap(), "half");
    stream.abort();
    assert!(body.frame().await.unwrap().is_err());
    gateway.idle().await;
    assert_eq!(second.counts().arrived, 0);
}

#[tokio::test]
async fn non_retryable_response_is_forwarded_unchanged() {
    let (gateway, first, second) = pair("", 1).await;
    for code in [201, 400, 401, 404, 413, 422, 500, 501] {
        let sent = gateway.ask("m").send();
        let body = json!({ "error": { "code": code, "message": "\u{e9}" } }).to_string();
        let response = Response::builder()
            .status(code)
            .header("content-type", "application/problem+json")
            .header("retry-after", "17")
            .header("x-request-id", "r-1");
        first
            .next()
            .await
            .respond(response.body(body.clone()).unwrap());
        let answer = sent.answer().await;
        assert_eq!((answer.status, answer.text()), (code, body.as_str()));
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        assert_eq!(answer.header("retry-after"), Some("17"));
        assert_eq!(answer.header("x-request-id"), Some("r-1"));
    }
    assert_eq!((first.counts().arrived, second.counts().arrived), (8, 0));
}

#[tokio::test]
async fn retries_stop_at_max_retries_with_the_last_response() {
    for (retries, tries) in [(0, 1), (1, 2), (2, 2)] {
        let (gateway, first, second) = pair(&format!("max_retries = {retries}"), 1).await;
        let sent = gateway.ask("m").send();
        first.next().await.respond(status(502));
        if tries > 1 {
            second.next().await.respond(status(503));
        }
        let answer = sent.answer().await;
        assert_eq!(answer.status, 501 + tries);
        gateway.idle().await;
        let arrived = first.counts().arrived + second.counts().arrived;
        assert_eq!(arrived, usize::from(tries));
    }
}

#[tokio::test]
async fn upstream_timeout_is_not_retried() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"")
        .backend("first", &first, 1, &["m"])
        .backend("second", &second, 1, &["m"])
        .sections("[upstream]\nfirst_byte_timeout_seconds = 0.2\n");
    let gateway = setup.start().await;
    let sent = gateway.ask("m").send();
    first.next().await.disconnected().await;
    sent.answer().await.assert_error(504, "upstream_timeout");
    gateway.idle().await;
    assert_eq!(second.counts().arrived, 0);
}

/// A 503 with a `retry-after` beyond the wait of any request.
fn later() -> Response<String> {
    let response = Response::builder().status(503).header("retry-after", "40");
    response.body("busy".to_owned()).unwrap()
}

#[tokio::test]
async fn refused_request_goes_elsewhere_or_back_in_line() {
    let (gateway, first, second) = pair("max_retries = 0", 1).await;
    for code in [429, 503, 529] {
        let full = || {
            let response = Response::builder().status(code).header("retry-after", "1");
            response.body("busy".to_owned()).unwrap()
        };
        let sent = gateway.ask("m").send();
        // After earlier refusals, the first endpoint may be left alone for a moment.
        tokio::select! {
            arrived = first.next() => {
                arrived.respond(full());
                second.next().await.respond(full());
            }
            arrived = second.next() => arrived.respond(full()),
        }
        tokio::select! {
            arrived = first.next() => arrived.answer("served"),
            arrived = second.next() => arrived.answer("served"),
        }
        sent.answer().await.assert_ok("served");
    }
    let state = gateway.state().await;
    assert_eq!(state.healthy(), [true, true]);
    gateway.idle().await;
}

#[tokio::test]
async fn refusal_beyond_the_wait_is_forwarded_unchanged() {
    let (gateway, first, second) = pair("max_retries = 0", 1).await;
    let sent = gateway.ask("m").send();
    first.next().await.respond(later());
    second.next().await.respond(later());
    let answer = sent.answer().await;
    assert_eq!((answer.status, answer.text()), (503, "busy"));
    assert_eq!(answer.header("retry-after"), Some("40"));
    assert_eq!(answer.header("x-triage-endpoint"), Some("second"));
    gateway.idle().await;
    assert_eq!((first.counts().arrived, second.counts().arrived), (1, 1));
}

#[tokio::test]
async fn body_over_retry_limit_is_not_retried_and_logged() {
    let (gateway, first, second) = pair("retry_body_limit_bytes = 100", 1).await;
    let body = |length: usize| {
        let padding = "x".repeat(length - 20);
        format!("{{\"model\":\"m\",\"x\":\"{padding}\"}}")
    };
    let (exact, larger) = (body(100), body(101));
    assert_eq!((exact.len(), larger.len()), (100, 101));

    let sent = gateway.ask("").body(exact).send();
    first.next().await.respond(status(503));
    second.next().await.answer("retried");
    sent.answer().await.assert_ok("retried");

    let sent = gateway.ask("").body(larger).send();
    first.next().await.respond(status(503));
    assert_eq!(sent.answer().await.status, 503);
    gateway
        .logs(&["WARN", "not retried", "retry_body_limit_bytes", "first"])
        .await;
    gateway.idle().await;
    assert_eq!(second.counts().arrived, 1);
}

#[tokio::test]
async fn client_disconnect_during_retry_frees_everything() {
    let (gateway, first, second) = pair("", 1).await;
    let sent = gateway.ask("m").send();
    first.next().await.respond(status(503));
    let retried = second.next().await;
    sent.disconnect();
    retried.disconnected().await;
    gateway.idle().await;

    // The other endpoint is busy: the retry waits.
    let busy = [(); 2].map(|()| gateway.ask("m").send());
    let (at_first, at_second) = (first.next().await, second.next().await);
    let waits = gateway.ask("m").label("waits").send();
    gateway.depth(1).await;
    at_first.answer("busy");
    let failing = first.next().await;
    assert_eq!(failing.label(), "waits");
    failing.respond(status(503));
    gateway
        .until("the retry waits", |state| {
            state.depth() == 1 && state.in_flight() == [0, 1]
        })
        .await;
    waits.disconnect();
    gateway.depth(0).await;
    at_second.answer("busy");
    for busy in busy {
        busy.answer().await.assert_ok("busy");
    }
    gateway.idle().await;
    assert_eq!(
        (first.counts().in_flight, second.counts().in_flight),
        (0, 0)
    );
}

#[tokio::test]
async fn retried_request_keeps_its_arrival_order() {
    let (gateway, first, second) = pair("", 1).await;
    let busy = gateway.ask("m").label("early").send();
    let early = first.next().await;
    let later_one = gateway.ask("m").send();
    let at_second = second.next().await;
    let late = gateway.ask("m").label("late").send();
    gateway.depth(1).await;

    // Its slot goes to the waiter. The retry waits for the other endpoint, ahead of later arrivals.
    early.respond(status(503));
    let at_first = first.next().await;
    assert_eq!(at_first.label(), "late");
    gateway.depth(1).await;
    let last = gateway.ask("m").label("last").send();
    gateway.depth(2).await;
    at_second.answer("fine");
    later_one.answer().await.assert_ok("fine");
    let retried = second.next().await;
    assert_eq!(retried.label(), "early");
    retried.answer("early");
    busy.answer().await.assert_ok("early");
    at_first.answer("late");
    late.answer().await.assert_ok("late");
    tokio::select! {
        arrived = first.next() => arrived.answer("last"),
        arrived = second.next() => arrived.answer("last"),
    }
    last.answer().await.assert_ok("last");
    gateway.idle().await;
}

#[tokio::test]
async fn retry_into_full_room_returns_the_failed_response() {
    let (first, second) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .queue("max_size = 0")
        .routing("strategy = \"round_robin\"\neject_after = 0")
        .backend("first", &first, 1, &["m"])
        .backend("second", &second, 1, &["m"]);
    let gateway = setup.start().await;
    let failing = gateway.ask("m").send();
    let at_first = first.next().await;
    let busy = gateway.ask("m").send();
    let at_second = second.next().await;
    at_first.respond(later());
    let answer = failing.answer().await;
    assert_eq!((answer.status, answer.text()), (503, "busy"));
    at_second.answer("fine");
    busy.answer().await.assert_ok("fine");
    gateway.idle().await;
}

#[tokio::test]
async fn retry_at_fallback_rewrites_the_model_name() {
    let (big, small) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .routing("aliases = { gpt = \"big\" }\nfallbacks = { big = [\"small\"] }")
        .backend("first", &big, 1, &["big"])
        .backend("second", &small, 1, &["small"]);
    let gateway = setup.start().await;
    let sent = gateway.ask("gpt").body("{\"model\" :\"gpt\"}").send();
    let failing = big.next().await;
    assert_eq!(failing.body, "{\"model\" :\"big\"}");
    failing.respond(status(503));
    let retried = small.next().await;
    assert_eq!(retried.body, "{\"model\" :\"small\"}");
    let lengths: Vec<_> = retried
        .head
        .headers
        .get_all("content-length")
        .iter()
        .collect();
    assert_eq!(lengths, ["18"]);
    retried.answer("small");
    let answer = sent.answer().await;
    answer.assert_ok("small");
    assert_eq!(answer.header("x-triage-model"), Some("small"));
}
