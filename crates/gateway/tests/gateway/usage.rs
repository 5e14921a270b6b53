//! Tests of the tokens that an answer says, wherever they stand in it.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Response;
use serde_json::json;

use crate::backend::{Backend, BackendRequest};
use crate::process::{Gateway, Setup};

async fn start(backend: &Backend) -> Gateway {
    let models = "models = [{ name = \"m\", context_length = 100000 }]";
    let setup = Setup::new().backend_with("gpu-1", &backend.url(), models);
    setup.start().await
}

fn json_answer(body: impl Into<Bytes>) -> Response<Bytes> {
    let response = Response::builder().header("content-type", "application/json");
    response.body(body.into()).unwrap()
}

#[tokio::test]
async fn the_first_event_of_a_stream_has_its_prompt_tokens() {
    let backend = Backend::start().await;
    let gateway = start(&backend).await;
    let asked = gateway.ask("m").path("/v1/messages").send();
    let stream = backend.next().await.stream();
    let event = |kind: &str, mut event: serde_json::Value| {
        event["type"] = kind.into();
        stream.send(&format!("event: {kind}\ndata: {event}\n\n"));
    };
    let usage = json!({ "input_tokens": 1234, "output_tokens": 1 });
    event("message_start", json!({ "message": { "usage": usage } }));
    for _ in 0..300 {
        event(
            "content_block_delta",
            json!({ "delta": { "text": "word " } }),
        );
    }
    event(
        "message_delta",
        json!({ "usage": { "output_tokens": 777 } }),
    );
    event("message_stop", json!({}));
    stream.end();
    assert_eq!(asked.answer().await.status, 200);
    let line = gateway.logs(&["request", "path=\"/v1/messages\""]).await;
    for word in ["prompt_tokens=1234", " tokens=777"] {
        assert!(line.contains(word), "{word}\n{line}");
    }
}

#[tokio::test]
async fn usage_in_front_of_a_long_list_counts() {
    let ids: Vec<u32> = (10_000..14_000).collect();
    let body = json!({
        "choices": [],
        "usage": { "prompt_tokens": 4000, "completion_tokens": 77 },
        "x_prompt_token_ids": ids,
    });
    let text = body.to_string();
    let backend = Backend::answering(move |arrived: BackendRequest| {
        arrived.respond(json_answer(text.clone()));
    })
    .await;
    let gateway = start(&backend).await;
    assert_eq!(gateway.ask("m").answer().await.status, 200);
    let line = gateway.logs(&["request", "status=200"]).await;
    for word in ["prompt_tokens=4000", " tokens=77"] {
        assert!(line.contains(word), "{word}\n{line}");
    }
}

#[tokio::test]
async fn a_client_that_reads_gzip_has_its_tokens_counted() {
    let backend = Backend::answering(|arrived: BackendRequest| {
        let usage = json!({ "prompt_tokens": 30, "completion_tokens": 400 });
        let body = json!({ "choices": [], "usage": usage }).to_string();
        let encodings = arrived.header("accept-encoding").unwrap_or_default();
        if !encodings.contains("gzip") {
            return arrived.respond(json_answer(body));
        }
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(body.as_bytes()).unwrap();
        let mut answer = json_answer(gzip.finish().unwrap());
        let encoding = "gzip".parse().unwrap();
        answer.headers_mut().insert("content-encoding", encoding);
        arrived.respond(answer);
    })
    .await;
    let gateway = start(&backend).await;
    let ask = gateway.ask("m").header("accept-encoding", "gzip, deflate");
    assert_eq!(ask.answer().await.status, 200);
    let line = gateway.logs(&["request", "status=200"]).await;
    for word in ["prompt_tokens=30", " tokens=400"] {
        assert!(line.contains(word), "{word}\n{line}");
    }
    // Pages of a model's server have no tokens, so they stay compressed.
    let page = gateway
        .get("/upstream/m/page")
        .header("accept-encoding", "gzip");
    assert_eq!(page.answer().await.header("content-encoding"), Some("gzip"));
}
