//! Tests of what is known of models, of what clients are told of them, and of Ollama's requests that start none.

use serde_json::{Value, json};

use crate::client::Answer;
use crate::process::{ConfigFile, Gateway, output};
use crate::swap::assert_served;
use crate::swap_support::{TempFile, model, ready, swap};

/// Requests with tools, JSON mode, images and long prompts, as agents send them.
fn agents_requests() -> [Value; 4] {
    let function = json!({ "type": "function", "function": { "name": "f" } });
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA" } });
    let content = |content: Value| json!([{ "role": "user", "content": content }]);
    [
        json!({ "messages": content("?".into()), "tools": [function] }),
        json!({ "messages": content("?".into()), "response_format": { "type": "json_object" } }),
        json!({ "messages": content(json!([image])) }),
        json!({ "messages": content("word ".repeat(8_000).into()) }),
    ]
}

async fn send(gateway: &Gateway, model: &str, mut body: Value) -> Answer {
    body["model"] = model.into();
    gateway.ask("").body(body.to_string()).answer().await
}

#[tokio::test]
async fn a_model_of_unknown_capabilities_takes_what_agents_send() {
    let section = model("a", &ready("a"));
    let gateway = swap("memory = 1.0").sections(&section).start().await;
    for body in agents_requests() {
        assert_served(&send(&gateway, "a", body).await, "a");
    }
}

#[tokio::test]
async fn a_model_takes_nothing_that_its_configuration_denies() {
    let denies = "tools = false\njson_mode = false\nvision = false\ncontext_length = 4096\n";
    let section = model("a", &ready("a")) + denies;
    let gateway = swap("memory = 1.0").sections(&section).start().await;
    for body in agents_requests() {
        let answer = send(&gateway, "a", body).await;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(gateway.model("a").await["state"], "unloaded");
}

#[tokio::test]
async fn check_says_what_is_unknown() {
    let section = model("a", &ready("a")) + "tools = true\ncontext_length = 4096\n";
    let file = ConfigFile::new(&format!(
        "listen = \"127.0.0.1:0\"\n[swap]\nmemory = 1.0\n{section}"
    ));
    let (_, report, _) = output(&["check", "--config", file.path()]).await;
    let note = report.lines().find(|line| line.starts_with("note: "));
    assert!(
        note.is_some_and(|note| note.contains("`vision`, `json_mode`")),
        "{report}"
    );
}

/// A gateway with the model `a`, of which all is known, and `b`, of which nothing is.
async fn known_and_unknown() -> Gateway {
    let known = "context_length = 32768\ntools = true\nvision = false\njson_mode = true\n";
    let setup = swap("memory = 1.0")
        .routing("aliases = { gpt = \"a\" }")
        .sections(&(model("a", &ready("a")) + known))
        .sections(&model("b", &ready("b")));
    setup.start().await
}

#[tokio::test]
async fn v1_models_tells_context_and_capabilities() {
    let gateway = known_and_unknown().await;
    let get = async |name: &str| {
        let path = format!("/v1/models/{name}");
        gateway.get(&path).answer().await.json()
    };
    for name in ["a", "gpt"] {
        let model = get(name).await;
        assert_eq!(model["context_length"], 32_768);
        assert_eq!(model["meta"]["n_ctx"], 32_768);
        let capabilities = json!({ "vision": false, "tools": true, "json_mode": true });
        assert_eq!(model["capabilities"], capabilities);
    }
    let model = get("b").await;
    assert!(model.get("context_length").is_none() && model.get("capabilities").is_none());
}

async fn post(gateway: &Gateway, path: &str, body: Value) -> Answer {
    let request = gateway.ask("").path(path).body(body.to_string());
    request.answer().await
}

#[tokio::test]
async fn ollamas_show_starts_nothing() {
    let gateway = known_and_unknown().await;
    for name in ["a", "gpt"] {
        let shown = post(&gateway, "/api/show", json!({ "model": name })).await;
        assert_eq!(shown.status, 200);
        let shown = shown.json();
        assert_eq!(shown["capabilities"], json!(["completion", "tools"]));
        let architecture = shown["model_info"]["general.architecture"]
            .as_str()
            .unwrap();
        let context = &shown["model_info"][format!("{architecture}.context_length")];
        assert_eq!(context, 32_768);
    }
    let shown = post(&gateway, "/api/show", json!({ "name": "b" })).await;
    assert_eq!(shown.json()["capabilities"], json!(["completion"]));
    assert_eq!(
        post(&gateway, "/api/show", json!({ "model": "c" }))
            .await
            .status,
        404
    );
    for name in ["a", "b"] {
        assert_eq!(gateway.model(name).await["state"], "unloaded");
    }
}

#[tokio::test]
async fn ollamas_unload_stops_an_idle_model_and_starts_none() {
    let gateway = known_and_unknown().await;
    assert_served(&gateway.ask("a").answer().await, "a");
    for name in ["b", "a"] {
        let body = json!({ "model": name, "keep_alive": 0 });
        let answer = post(&gateway, "/api/generate", body).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["done_reason"], "unload");
    }
    gateway.until_state("a", "unloaded").await;
    assert_eq!(gateway.model("b").await["state"], "unloaded");
    assert_eq!(gateway.logged("model is loaded"), 1);
}

#[tokio::test]
async fn ollamas_unload_leaves_a_model_for_which_requests_wait() {
    let gate = TempFile::new();
    let setup = swap("memory = 1.0").sections(&model("a", &gate.gates("a")));
    let gateway = setup.start().await;
    let waits = gateway.ask("a").send();
    gateway.until_state("a", "loading").await;
    let body = json!({ "model": "a", "keep_alive": "0s", "messages": [] });
    let answer = post(&gateway, "/api/chat", body).await;
    assert_eq!(answer.json()["message"]["content"], "");
    gate.open();
    assert_served(&waits.answer().await, "a");
}

#[tokio::test]
async fn a_short_request_at_ollamas_paths_reaches_the_model_whole() {
    let backend = crate::backend::Backend::start().await;
    let setup = swap("memory = 1.0").sections(&model("a", &ready("a")));
    let gateway = setup.backend("gpu-1", &backend, 1, &["m"]).start().await;
    for path in ["/api/generate", "/api/show"] {
        let body = json!({ "model": "m", "prompt": "x", "keep_alive": 0 }).to_string();
        let sent = gateway.ask("").path(path).body(body.clone()).send();
        let arrived = backend.next().await;
        assert_eq!(arrived.body, body);
        arrived.answer("done");
        sent.answer().await.assert_ok("done");
    }
}
