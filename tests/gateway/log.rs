//! Tests of the log line of a request.

use http_body_util::BodyExt;

use crate::backend::Backend;
use crate::process::Setup;
use crate::waiting_status::asks;

#[tokio::test]
async fn request_log_line_records_the_routing_decision() {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new()
        .sections("[server]\npaths = \"all\"\n")
        .routing("aliases = { gpt = \"m\" }\nfallbacks = { large = [\"m\"] }")
        .backend("a", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    for (asked, via) in [("m", "direct"), ("gpt", "alias"), ("large", "fallback")] {
        let path = format!("/{asked}");
        let answer = gateway.ask(asked).path(&path).answer().await;
        answer.assert_ok("fine");
        let line = gateway
            .logs(&["request", &format!("path=\"{path}\"")])
            .await;
        for word in [
            "status=200",
            "endpoint=\"a\"",
            "model=\"m\"",
            "strategy=\"smart\"",
            "score=",
            "retries=0",
        ] {
            assert!(line.contains(word), "{word}\n{line}");
        }
        assert!(line.contains(&format!("via=\"{via}\"")), "{line}");
        let other = format!("asked=\"{asked}\"");
        assert_eq!(line.contains(&other), asked != "m", "{line}");
    }
}

#[tokio::test]
async fn rejected_request_is_logged_without_endpoint() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .backend("a", &backend, 1, &["m"])
        .sections("[server]\npaths = \"all\"\n");
    let gateway = setup.start().await;
    let answer = gateway.ask("gpt-5").path("/nowhere").answer().await;
    answer.assert_error(404, "model_not_found");
    let line = gateway.logs(&["path=\"/nowhere\"", "status=404"]).await;
    assert!(line.contains("code=\"model_not_found\""), "{line}");
    assert!(!line.contains("endpoint="), "{line}");
}

#[tokio::test]
async fn a_status_stream_is_logged_with_what_came_of_it() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .backend("a", &backend, 1, &["m"])
        .sections("[server]\npaths = \"all\"\n");
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let waiting = asks(gateway.ask("m").path("/waits")).open().await;
    assert_eq!(waiting.headers()["x-accel-buffering"], "no");
    gateway.depth(1).await;
    assert_eq!(gateway.logged("/waits"), 0);
    running.answer("first");
    first.answer().await.assert_ok("first");
    let stream = backend.next().await.stream();
    stream.send("data: one\n\n");
    stream.end();
    let body = waiting.into_body().collect().await.unwrap().to_bytes();
    assert!(body.ends_with(b"data: one\n\n"));
    let line = gateway.logs(&["request", "path=\"/waits\""]).await;
    for word in [
        "status=200",
        "answered=200",
        "endpoint=\"a\"",
        "model=\"m\"",
    ] {
        assert!(line.contains(word), "{word}\n{line}");
    }
    let (_, waited) = line.split_once("queue_ms=").expect(&line);
    let waited = waited.split(' ').next().unwrap();
    assert!(waited.parse::<f64>().unwrap() > 0.0, "{line}");
    assert_eq!(gateway.logged("/waits"), 1);
}

#[tokio::test]
async fn a_status_stream_in_vain_is_logged_with_its_code() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("max_wait_seconds = 0.2")
        .backend("a", &backend, 1, &["m"])
        .sections("[server]\npaths = \"all\"\n");
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let late = asks(gateway.ask("m").path("/late")).answer().await;
    assert!(late.text().contains("queue_timeout"), "{late:?}");
    let line = gateway.logs(&["request", "path=\"/late\""]).await;
    for word in [
        "status=200",
        "answered=503",
        "code=\"queue_timeout\"",
        "queue_ms=",
    ] {
        assert!(line.contains(word), "{word}\n{line}");
    }
    assert!(!line.contains("endpoint="), "{line}");
    running.answer("first");
    first.answer().await.assert_ok("first");
}

#[tokio::test]
async fn a_status_stream_that_is_left_is_logged_so() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .backend("a", &backend, 1, &["m"])
        .sections("[server]\npaths = \"all\"\n");
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    drop(asks(gateway.ask("m").path("/left")).open().await);
    gateway
        .logs(&["client disconnected while its request waited", "/left"])
        .await;
    running.answer("first");
    first.answer().await.assert_ok("first");
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_is_named_and_passed_over() {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new()
        .environment("TRIAGE_LOG", "gateway=loud=very")
        .environment("RUST_LOG", "")
        .backend("a", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    gateway.logs(&["WARN", "TRIAGE_LOG", "is ignored"]).await;
    gateway.ask("m").answer().await.assert_ok("fine");
    gateway.logs(&["INFO", "status=200"]).await;
}
