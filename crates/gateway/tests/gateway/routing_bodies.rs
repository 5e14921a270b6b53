//! Tests of request bodies: valid and malformed JSON, encodings, and the rewriting of model names.

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::backend::Backend;
use crate::client::Answer;
use crate::process::{Gateway, Setup, TIMEOUT};

async fn gateway(backend: &Backend) -> Gateway {
    let setup = Setup::new()
        .top("body_limit_bytes = 4000000")
        .routing("aliases = { alias = \"m\" }")
        .backend("gpu-1", backend, 2, &["m"]);
    setup.start().await
}

/// Sends `body` while another response is streamed, and asserts that the stream is undisturbed.
async fn beside_a_stream(gateway: &Gateway, backend: &Backend, body: impl Into<Bytes>) -> Answer {
    let other = gateway.ask("m").send();
    let stream = backend.next().await.stream();
    stream.send("undis");
    let answer = gateway.ask("").body(body).answer().await;
    stream.send("turbed");
    stream.end();
    other.answer().await.assert_ok("undisturbed");
    answer
}

#[tokio::test]
async fn malformed_bodies_are_400_and_disturb_no_other_request() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend).await;
    let before = |value: String| format!("{{\"x\":{value},\"model\":\"m\"");
    for body in [
        before("[".repeat(1_000_000)).into_bytes(),
        before("{\"a\":".repeat(500_000)).into_bytes(),
        before("\"\\ud800\"x".to_owned()).into_bytes(),
        br#"{"model":"m","model":"m"}"#.to_vec(),
        br#"{"model":"m","mod\u0065l":"other"}"#.to_vec(),
        br#"{"model":"\ud800"}"#.to_vec(),
        br#"{"model":"\x"}"#.to_vec(),
        b"{\"model\":\"a\nb\"}".to_vec(),
        b"{\"model\":\"m\",\"x\":\"\xff\xfe\"}".to_vec(),
        b"{\"model\":\"\xc3\"}".to_vec(),
        b"\xef\xbb\xbf{\"model\":\"m\"}".to_vec(),
        br#"{"model":"m"}{"model":"m"}"#.to_vec(),
        br#"{"model":"m","x":1e}"#.to_vec(),
        br#"{"model":"m","x":NaN}"#.to_vec(),
        br#"{"model":["m"]}"#.to_vec(),
    ] {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let answer = beside_a_stream(&gateway, &backend, body).await;
        assert_eq!(
            answer.error(),
            (400, "malformed_body".to_owned()),
            "{shown}"
        );
        assert!(answer.text().len() < 1_000, "{shown}: {}", answer.text());
    }
    gateway.idle().await;
    assert_eq!(backend.counts().in_flight, 0);
}

#[tokio::test]
async fn escaped_model_name_is_unescaped() {
    let backend = Backend::start().await;
    let name = "org/\u{e9}\u{1f999}\"\\ 7b";
    let setup = Setup::new().backend("gpu-1", &backend, 1, &[name]);
    let gateway = setup.start().await;
    let plain = serde_json::json!({ "model": name }).to_string();
    let escaped = r#"{"mode\u006c":"org\/\u00e9\ud83e\udd99\u0022\\\u0020\u0037b"}"#;
    for body in [plain.as_str(), escaped] {
        let ask = gateway.ask("").body(body.to_owned());
        let (answer, seen) = tokio::join!(ask.answer(), async {
            let arrived = backend.next().await;
            let seen = arrived.body.clone();
            arrived.answer("fine");
            seen
        });
        answer.assert_ok("fine");
        assert_eq!(seen, body);
    }
}

#[tokio::test]
async fn huge_model_name_is_404_and_not_echoed() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend).await;
    for letter in ["x", "\u{1f999}", "\\u00e9"] {
        let name = letter.repeat(1_000_000 / letter.len());
        let answer = beside_a_stream(&gateway, &backend, format!("{{\"model\":\"{name}\"}}")).await;
        answer.assert_error(404, "model_not_found");
        assert!(answer.text().len() < 1_000, "{}", answer.text().len());
    }
}

#[tokio::test]
async fn body_nested_a_million_deep_is_served() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend).await;
    let deep = 1_000_000;
    let (open, close) = ("[".repeat(deep), "]".repeat(deep));
    for model in ["m", "alias"] {
        let body = |model: &str| format!("{{\"x\":{open}{close},\"model\":\"{model}\"}}");
        let ask = gateway.ask("").body(body(model));
        let (answer, seen) = tokio::join!(ask.answer(), async {
            let arrived = backend.next().await;
            let seen = arrived.body.clone();
            arrived.answer("fine");
            seen
        });
        answer.assert_ok("fine");
        assert!(seen == body("m"));
    }
}

#[tokio::test]
async fn encoded_body_is_415_naming_its_encoding() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend).await;
    for encoding in ["gzip", "GZIP", "identity, br"] {
        let ask = gateway.ask("m").header("content-encoding", encoding);
        let answer = ask.answer().await;
        answer.assert_error(415, "unsupported_encoding");
        assert!(answer.message().contains(encoding), "{}", answer.message());
    }
    for encoding in ["identity", "Identity", ""] {
        let ask = gateway.ask("m").header("content-encoding", encoding);
        let (answer, ()) = tokio::join!(ask.answer(), async {
            backend.next().await.answer("fine");
        });
        answer.assert_ok("fine");
    }
}

#[tokio::test]
async fn alias_rewrites_only_the_model_name_bytes() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend).await;
    for (start, end) in [
        ("{\"model\":", "}"),
        (
            " {\r\n\t\"messages\" : [ {\"content\":\"\\u0061lias \\/ \u{e9}\"} ] ,\"model\"\t: ",
            " , \"big\":123456789012345678901234567890.10e-400,\"model2\":\"alias\" } \n",
        ),
        (
            "{\"a\":1,\"a\":2,\"x\":{\"model\":\"alias\"},\"\\u006dodel\":",
            ",\"stream\":false,\"stream\":true}",
        ),
    ] {
        for (asked, named) in [
            ("\"alias\"", "\"m\""),
            ("\"\\u0061lias\"", "\"m\""),
            ("\"m\"", "\"m\""),
            ("\"\\u006d\"", "\"\\u006d\""),
        ] {
            let ask = gateway.ask("").body(format!("{start}{asked}{end}"));
            let (answer, (head, seen)) = tokio::join!(ask.answer(), async {
                let arrived = backend.next().await;
                let seen = (arrived.head.clone(), arrived.body.clone());
                arrived.answer("fine");
                seen
            });
            answer.assert_ok("fine");
            assert_eq!(seen, format!("{start}{named}{end}"));
            let lengths: Vec<_> = head.headers.get_all("content-length").iter().collect();
            assert_eq!(lengths, [seen.len().to_string().as_str()]);
        }
    }
}

#[tokio::test]
async fn alias_is_rewritten_in_a_chunked_body() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend).await;
    let mut socket = TcpStream::connect(gateway.addr()).await.unwrap();
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let chunks = "8\r\n{\"model\"\r\n5\r\n: \"al\r\n5\r\nias\"}\r\n0\r\n\r\n";
    let request = format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}");
    socket.write_all(request.as_bytes()).await.unwrap();
    let arrived = backend.next().await;
    assert_eq!(arrived.body, "{\"model\": \"m\"}");
    arrived.answer("fine");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("fine"), "{answer}");
}

#[tokio::test]
async fn truncated_body_reaches_no_backend() {
    let backend = Backend::start().await;
    let gateway = gateway(&backend).await;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: x\r\n";
    for rest in [
        "content-length: 100\r\n\r\n{\"model\":\"m\"}",
        "transfer-encoding: chunked\r\n\r\nd\r\n{\"model\":\"m\"}\r\n",
        "transfer-encoding: chunked\r\n\r\nd\r\n{\"model\":\"m\"}\r\nx\r\n",
    ] {
        let mut socket = TcpStream::connect(gateway.addr()).await.unwrap();
        let request = format!("{head}{rest}");
        socket.write_all(request.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let end = tokio::time::timeout(TIMEOUT, socket.read_to_end(&mut answer)).await;
        let message = String::from_utf8_lossy(&answer);
        assert!(end.is_ok(), "the connection stays open: {message}");
        assert!(answer.is_empty() || message.contains(" 400 "), "{message}");
    }
    let (answer, label) = tokio::join!(gateway.ask("m").label("next").answer(), async {
        let arrived = backend.next().await;
        let label = arrived.label().to_owned();
        arrived.answer("fine");
        label
    });
    answer.assert_ok("fine");
    assert_eq!(label, "next");
    gateway.idle().await;
}
