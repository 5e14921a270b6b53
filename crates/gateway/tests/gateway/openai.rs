//! Tests with OpenAI's official Python client.

use serde_json::{Value, json};

use crate::backend::{Backend, BackendRequest};
use crate::openai_client::OpenAi;
use crate::process::Setup;

fn chat(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "Am I next?" }] })
}

fn streamed(model: &str) -> Value {
    let mut chat = chat(model);
    chat["stream"] = true.into();
    chat
}

/// Responds in the format of OpenAI's API.
fn complete(arrived: BackendRequest, text: &str) {
    let model = arrived.model();
    let message = json!({ "role": "assistant", "content": text });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
    let mut completion = json!({ "id": "c", "object": "chat.completion", "created": 0 });
    completion["model"] = model.into();
    completion["choices"] = json!([choice]);
    let response = http::Response::builder().header("content-type", "application/json");
    arrived.respond(response.body(completion.to_string()).unwrap());
}

/// Streams in the format of OpenAI's API, a word per chunk.
fn stream(arrived: BackendRequest, text: &str) {
    let model = arrived.model();
    let stream = arrived.stream();
    for word in text.split_inclusive(' ') {
        let choice = json!({ "index": 0, "delta": { "content": word } });
        let mut chunk = json!({ "id": "c", "object": "chat.completion.chunk", "created": 0 });
        chunk["model"] = model.as_str().into();
        chunk["choices"] = json!([choice]);
        stream.send(&format!("data: {chunk}\n\n"));
    }
    stream.send("data: [DONE]\n\n");
    stream.end();
}

#[tokio::test]
async fn openai_client_reads_whole_and_streamed_responses() {
    let backend = Backend::answering(|arrived| {
        let asks_for_stream =
            serde_json::from_slice::<Value>(&arrived.body).unwrap()["stream"] == true;
        match asks_for_stream {
            true => stream(arrived, "You are next \u{1f999}"),
            false => complete(arrived, "You are next \u{1f999}"),
        }
    })
    .await;
    let setup = Setup::new()
        .routing("aliases = { \"gpt-4\" = \"m\" }\nfallbacks = { away = [\"m\"] }")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let mut client = OpenAi::new(&gateway, 0);
    for request in [chat("m"), streamed("m"), chat("gpt-4"), streamed("away")] {
        let result = client.chat(request.clone()).await;
        assert_eq!(
            result["text"], "You are next \u{1f999}",
            "{request}\n{result}"
        );
    }
}

#[tokio::test]
async fn openai_client_maps_each_rejection_to_its_exception() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("max_size = 0\nretry_after = { mode = \"fixed\", min_seconds = 7 }")
        .routing("fallbacks = { away = [\"far\", \"gone\"] }")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let _running = gateway.ask("m").send();
    let _arrived = backend.next().await;
    let with_tools = {
        let mut chat = chat("m");
        let function = json!({ "name": "look_up", "parameters": { "type": "object" } });
        chat["tools"] = json!([{ "type": "function", "function": function }]);
        chat
    };
    let unavailable = json!("InternalServerError");
    let mut client = OpenAi::new(&gateway, 0);
    for (request, error, status, code, param, retry_after) in [
        (
            chat("gpt-5"),
            json!("NotFoundError"),
            404,
            "model_not_found",
            json!("model"),
            Value::Null,
        ),
        (
            streamed("gpt-5"),
            json!("NotFoundError"),
            404,
            "model_not_found",
            json!("model"),
            Value::Null,
        ),
        (
            with_tools,
            json!("BadRequestError"),
            400,
            "capability_mismatch",
            json!("model"),
            Value::Null,
        ),
        (
            chat(""),
            json!("BadRequestError"),
            400,
            "model_missing",
            json!("model"),
            Value::Null,
        ),
        (
            chat("m"),
            unavailable.clone(),
            503,
            "queue_disabled",
            Value::Null,
            json!("7"),
        ),
        (
            streamed("m"),
            unavailable.clone(),
            503,
            "queue_disabled",
            Value::Null,
            json!("7"),
        ),
        (
            chat("away"),
            unavailable,
            503,
            "fallback_chain_exhausted",
            Value::Null,
            json!("7"),
        ),
    ] {
        let result = client.chat(request.clone()).await;
        assert_eq!(result["error"], error, "{request}\n{result}");
        assert_eq!(result["status"], status, "{request}\n{result}");
        assert_eq!(result["code"], code, "{request}\n{result}");
        assert_eq!(result["param"], param, "{request}\n{result}");
        assert_eq!(result["retry_after"], retry_after, "{request}\n{result}");
        let message = result["message"].as_str().unwrap();
        assert!(message.contains(&status.to_string()), "{request}\n{result}");
    }
}

#[tokio::test]
async fn openai_client_retries_after_retry_after() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("max_size = 0\nretry_after = { mode = \"fixed\", min_seconds = 2 }")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    let mut client = OpenAi::new(&gateway, 1);
    let (result, ()) = tokio::join!(client.chat(streamed("m")), async {
        let refused = |state: &crate::process::State| state.rejected("queue_disabled") == 1;
        gateway.until("refused", refused).await;
        arrived.answer("done");
        running.answer().await.assert_ok("done");
        stream(backend.next().await, "You are next");
    });
    assert_eq!(result["text"], "You are next", "{result}");
    assert!(result["seconds"].as_f64().unwrap() >= 2.0, "{result}");
    assert_eq!(gateway.state().await.rejected("queue_disabled"), 1);
}
