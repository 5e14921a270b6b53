//! Tests of the gateway's own responses: the operator's pages, and rejections of unservable requests.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backend::Backend;
use crate::process::{Gateway, Setup};

/// A gateway with one slot and one place in the waiting room, both taken until the second value is dropped.
pub(crate) async fn full(top: &str) -> (Gateway, impl Sized) {
    let backend = Backend::start().await;
    let setup =
        Setup::new()
            .top(top)
            .queue("max_size = 1")
            .backend("gpu-1", &backend, 1, &["m", "n"]);
    let gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    let waiting = gateway.ask("m").send();
    gateway.depth(1).await;
    (gateway, (backend, running, arrived, waiting))
}

#[tokio::test]
async fn unservable_requests_are_rejected_even_when_room_full() {
    let (gateway, _busy) = full("").await;
    for (body, status, code) in [
        (r#"{"model":"gpt-5"}"#, 404, "model_not_found"),
        (r#"{"model":"M"}"#, 404, "model_not_found"),
        (r#"{"messages":[]}"#, 400, "model_missing"),
        (r#"{"model":""}"#, 400, "model_missing"),
        (r#"{"model":null}"#, 400, "model_missing"),
        (r#"{"model":7}"#, 400, "malformed_body"),
        (r#"{"model":"m""#, 400, "malformed_body"),
        (r#"["m"]"#, 400, "malformed_body"),
        ("", 400, "malformed_body"),
        ("model=m", 400, "malformed_body"),
    ] {
        for path in [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/embeddings",
            "/rerank",
        ] {
            let answer = gateway.ask("").path(path).body(body).answer().await;
            assert_eq!(answer.error(), (status, code.to_owned()), "{body} {path}");
            assert_eq!(answer.header("retry-after"), None);
        }
    }
    let nowhere = gateway.get("/v1/chat/completions").answer().await;
    nowhere.assert_error(404, "not_found");
    gateway
        .ask("m")
        .answer()
        .await
        .assert_error(503, "queue_full");
    assert_eq!(gateway.state().await.depth(), 1);
}

#[tokio::test]
async fn oversized_body_is_413_with_or_without_content_length() {
    let (gateway, _busy) = full("body_limit_bytes = 100").await;
    let body = |length| {
        let mut body = r#"{"model":"m"}"#.to_owned();
        body.extend(std::iter::repeat_n(' ', length - body.len()));
        body
    };
    let exact = gateway.ask("").body(body(100)).answer().await;
    exact.assert_error(503, "queue_full");
    for length in [101, 10_000] {
        let answer = gateway.ask("").body(body(length)).answer().await;
        answer.assert_error(413, "body_too_large");
    }
    let asked_before = gateway.ask("").header("expect", "100-continue");
    let answer = asked_before.body(body(101)).answer().await;
    answer.assert_error(413, "body_too_large");
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\n";
    let chunk = format!("{:x}\r\n{}\r\n", 60, body(60));
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n");
    let large = 32 << 20; // more than the socket buffers take
    let large = format!("content-length: {large}\r\n\r\n{}", body(large));
    for rest in [chunked, large] {
        let mut socket = TcpStream::connect(gateway.addr()).await.unwrap();
        let request = format!("{head}{rest}");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut start = [0; 12];
        socket.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"HTTP/1.1 413");
    }
}

#[tokio::test]
async fn v1_models_lists_models_then_aliases() {
    let (one, two) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .routing("aliases = { z = \"a\", b = \"c\" }")
        .backend("gpu-1", &one, 1, &["a", "b"])
        .backend("gpu-2", &two, 1, &["b", "c"]);
    let gateway = setup.start().await;
    let list = gateway.get("/v1/models").answer().await.json();
    assert_eq!(list["object"], "list");
    let models = list["data"].as_array().unwrap();
    for model in models {
        assert_eq!(model["object"], "model");
        assert!(model["created"].is_u64() && model["owned_by"].is_string());
    }
    let ids: Vec<&Value> = models.iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["a", "b", "c", "z"]);
}

#[tokio::test]
async fn head_response_has_headers_of_get_without_body() {
    let gateway = Setup::new()
        .top("[admin]\nlisten = \"127.0.0.1:0\"\n")
        .start()
        .await;
    let pages = [
        (gateway.client(), "/healthz", 200),
        (gateway.client(), "/v1/models", 200),
        (gateway.client(), "/v1/nothing", 404),
        (gateway.admin(), "/admin/models", 200),
        (gateway.admin(), "/admin/nothing", 404),
    ];
    for (client, path, status) in pages {
        for client in [client.clone(), client.http2()] {
            let got = client.get(path).answer().await;
            let head = client.head(path).answer().await;
            assert_eq!((head.status, head.text()), (status, ""), "{path}");
            assert_eq!(head.header("content-type"), got.header("content-type"));
            // The error of a page that is not there names the method.
            if status == 200 {
                let length = head.header("content-length").unwrap();
                assert_eq!(length, got.text().len().to_string());
            }
        }
    }
}

#[tokio::test]
async fn admin_state_shows_waiting_running_and_rejected() {
    let (gateway, _busy) = full("").await;
    assert_eq!(gateway.get("/healthz").answer().await.status, 200);
    for _ in 0..2 {
        gateway
            .ask("n")
            .answer()
            .await
            .assert_error(503, "queue_full");
    }
    gateway
        .ask("gpt-5")
        .answer()
        .await
        .assert_error(404, "model_not_found");
    let answer = gateway.get("/admin/state").answer().await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let state = answer.json();
    assert_eq!(state["queue"]["depth"], 1);
    assert_eq!(state["queue"]["running"], 1);
    assert_eq!(
        state["queue"]["rejected"],
        json!({ "queue_full": 2, "model_not_found": 1 })
    );
    assert_eq!(
        state["endpoints"],
        json!([{
            "name": "gpu-1", "in_flight": 1, "limit": 1, "healthy": true, "draining": false, "priority": 1,
            "first_byte_ms": 0.0, "total_ms": 0.0, "models": ["m", "n"],
        }])
    );
}
