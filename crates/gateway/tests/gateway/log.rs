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
            "tries=1",
            "result=\"complete\"",
            "level=\"normal\"",
            "bytes=4",
            "first_byte_ms=",
        ] {
            assert!(line.contains(word), "{word}\n{line}");
        }
        assert!(line.contains(&format!("via=\"{via}\"")), "{line}");
        assert!(!line.contains("tenant="), "{line}");
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
    let ask = gateway.ask("gpt-5").tenant("team-a").high();
    let answer = ask.path("/nowhere").answer().await;
    answer.assert_error(404, "model_not_found");
    let line = gateway.logs(&["path=\"/nowhere\"", "status=404"]).await;
    for word in [
        "code=\"model_not_found\"",
        "tenant=\"team-a\"",
        "level=\"high\"",
        "asked=\"gpt-5\"",
        "tries=0",
    ] {
        assert!(line.contains(word), "{word}\n{line}");
    }
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
    let left = "result=\"client_disconnected\"";
    let line = gateway.logs(&["path=\"/left\"", left]).await;
    assert!(!line.contains("answered="), "{line}");
    assert!(line.contains("asked=\"m\""), "{line}");
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

#[tokio::test]
async fn every_response_has_the_id_of_its_request() {
    let backend = Backend::start().await;
    let gateway = Setup::new().backend("a", &backend, 1, &["m"]).start().await;
    let sent = gateway.ask("m").header("x-request-id", "req-1/a~").send();
    let arrived = backend.next().await;
    assert_eq!(arrived.header("x-request-id"), Some("req-1/a~"));
    let own = http::Response::builder().header("x-request-id", "of-backend");
    arrived.respond(own.body("fine").unwrap());
    let answer = sent.answer().await;
    assert_eq!(answer.header("x-request-id"), Some("of-backend"));
    let line = gateway.logs(&["id=\"req-1/a~\"", "status=200"]).await;
    assert!(line.contains("backend_id=\"of-backend\""), "{line}");

    let malformed = gateway.ask("m").header("x-request-id", "a b");
    let sent = malformed.send();
    let arrived = backend.next().await;
    let made = arrived.header("x-request-id").unwrap().to_owned();
    assert_eq!(made.len(), 32, "{made}");
    arrived.answer("fine");
    assert_eq!(sent.answer().await.header("x-request-id"), Some(&*made));

    for refused in [gateway.ask("gpt-5"), gateway.get("/v1/nothing")] {
        let refused = refused.header("x-request-id", "refused").answer().await;
        refused.assert_error(404, refused.error().1.as_str());
        assert_eq!(refused.header("x-request-id"), Some("refused"));
    }
    gateway
        .logs(&["id=\"refused\"", "code=\"not_found\""])
        .await;
}

#[tokio::test]
async fn text_of_clients_forges_no_line() {
    let backend = Backend::start().await;
    for format in ["text", "json"] {
        let setup = Setup::new().arguments(&["--log", format]);
        let gateway = setup.backend("a", &backend, 1, &["m"]).start().await;
        let forged = "x\n2026-01-01 INFO forged: \u{1b}[31m\u{202e}\" status=200";
        let long = format!("{forged}{}", "y".repeat(100_000));
        let answer = gateway.ask(&long).tenant("t\u{e9}\u{9b}m").answer().await;
        assert_eq!(answer.status, 404);
        let line = gateway.logs(&["model_not_found", "forged"]).await;
        assert!(line.len() < 2_000, "{}", line.len());
        assert!(!line.contains('\u{1b}'), "{line}");
        assert!(line.contains("x\\n2026"), "{line}");
        assert_eq!(gateway.logged("forged"), 1);
    }
}

#[tokio::test]
async fn failures_of_backends_are_logged_with_code_and_tries() {
    let gone = Backend::unreachable();
    let setup = Setup::new()
        .backend_at("a", &gone, 1, &["m"])
        .sections("[server]\npaths = \"all\"\n");
    let gateway = setup.start().await;
    let answer = gateway.ask("m").path("/gone").answer().await;
    assert_eq!(answer.status, 502);
    let line = gateway.logs(&["path=\"/gone\"", "status=502"]).await;
    for word in [
        "code=\"upstream_unreachable\"",
        "endpoint=\"a\"",
        "tries=1",
        "result=\"complete\"",
    ] {
        assert!(line.contains(word), "{word}\n{line}");
    }
    assert!(!line.contains("first_byte_ms="), "{line}");
}

#[tokio::test]
async fn responses_that_are_cut_off_are_logged_with_who_cut_them() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .backend("a", &backend, 2, &["m"])
        .sections("[server]\npaths = \"all\"\n");
    let gateway = setup.start().await;
    let (left, stream) = tokio::join!(gateway.ask("m").path("/left").open(), async {
        backend.next().await.stream()
    });
    stream.send("data: 1\n\n");
    let mut body = left.into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    let line = gateway
        .logs(&["path=\"/left\"", "result=\"client_disconnected\""])
        .await;
    assert!(line.contains("status=200"), "{line}");
    assert!(line.contains("bytes=9"), "{line}");

    let (broken, stream) = tokio::join!(gateway.ask("m").path("/broken").open(), async {
        backend.next().await.stream()
    });
    stream.send("data: 1\n\n");
    let mut body = broken.into_body();
    body.frame().await.unwrap().unwrap();
    stream.abort();
    assert!(body.frame().await.unwrap().is_err());
    gateway
        .logs(&["path=\"/broken\"", "result=\"broke_off\""])
        .await;

    let sent = gateway.ask("m").path("/unanswered").send();
    let arrived = backend.next().await;
    sent.disconnect();
    arrived.disconnected().await;
    let line = gateway
        .logs(&["path=\"/unanswered\"", "result=\"client_disconnected\""])
        .await;
    assert!(line.contains("endpoint=\"a\""), "{line}");
    assert!(!line.contains("status="), "{line}");
}

#[tokio::test]
async fn tokens_are_logged_where_tenants_are_charged_for_them() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("discipline = \"fair\"")
        .sections("[server]\npaths = \"all\"\n");
    let setup = setup.backend("a", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let sent = gateway.ask("m").path("/tokens").send();
    let usage = r#"{"usage":{"prompt_tokens":7,"completion_tokens":12}}"#;
    backend.next().await.answer(usage);
    sent.answer().await.assert_ok(usage);
    let line = gateway.logs(&["path=\"/tokens\""]).await;
    assert!(line.contains("prompt_tokens=7 tokens=12"), "{line}");
}

#[tokio::test]
async fn no_text_of_a_client_begins_a_line_of_its_own() {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new()
        .environment("TRIAGE_LOG", "trace")
        .backend("a", &backend, 1, &["m"])
        .sections("[server]\npaths = \"all\"\n");
    let gateway = setup.start().await;
    let forged = "2026-01-01T00:00:00Z  INFO gateway: forged";
    let name = format!("x\n{forged}\r{forged}\u{85}{forged}");
    let body = serde_json::json!({ "model": name }).to_string();
    let answer = gateway.ask("").body(body).path("/one").answer().await;
    answer.assert_error(404, "model_not_found");
    let query = format!("/v1/two?model=x%0a{}", forged.replace(' ', "%20"));
    gateway.client().post(&query).answer().await;
    let ask = gateway
        .ask("m")
        .header("content-encoding", format!("x\t{forged}"));
    assert_eq!(ask.path("/three").answer().await.status, 415);
    gateway.logs(&["request", "path=\"/three\""]).await;
    let lines = gateway.log_lines();
    assert!(lines.iter().any(|line| line.contains("forged")));
    for line in &lines {
        assert!(!line.starts_with(forged), "{line}");
        assert!(!line.contains(['\r', '\u{85}']), "{line:?}");
    }
}
