//! Tests of routing by capability: vision, tools, JSON mode and context length.

use serde_json::{Value, json};

use crate::backend::Backend;
use crate::client::Answer;
use crate::process::{Gateway, Setup};

fn image(model: &str) -> Value {
    let url = json!({ "url": "data:image/png;base64,AAAA" });
    let parts = json!([{ "type": "text", "text": "?" }, { "type": "image_url", "image_url": url }]);
    json!({ "model": model, "messages": [{ "role": "user", "content": parts }] })
}

fn tools(model: &str) -> Value {
    let tool = json!({ "type": "function", "function": { "name": "look_up" } });
    json!({ "model": model, "messages": [], "tools": [tool] })
}

fn json_mode(model: &str) -> Value {
    json!({ "model": model, "messages": [], "response_format": { "type": "json_object" } })
}

/// A request of about `tokens` tokens.
fn long(model: &str, tokens: usize) -> Value {
    let text = "word".repeat(tokens);
    json!({ "model": model, "messages": [{ "role": "user", "content": text }] })
}

async fn answer(gateway: &Gateway, body: &Value) -> Answer {
    gateway.ask("").body(body.to_string()).answer().await
}

/// Two endpoints for model `m`: `A` without capabilities, and `B` with this one.
async fn plain_and_capable(ability: &str) -> (Gateway, [Backend; 2]) {
    let (a, b) = (Backend::replying("A").await, Backend::replying("B").await);
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"")
        .backend("a", &a, 4, &["m"])
        .backend_with(
            "b",
            &b.url(),
            &format!("models = [{{ name = \"m\", {ability} }}]"),
        );
    (setup.start().await, [a, b])
}

#[tokio::test]
async fn endpoint_without_required_capability_gets_no_request() {
    for (ability, body) in [
        ("vision = true", image("m")),
        ("tools = true", tools("m")),
        ("json_mode = true", json_mode("m")),
        ("context_length = 9000", long("m", 5_000)),
    ] {
        let (gateway, [a, _b]) = plain_and_capable(ability).await;
        for _ in 0..4 {
            answer(&gateway, &body).await.assert_ok("B");
        }
        assert_eq!(a.counts().arrived, 0, "{ability}");
        for _ in 0..2 {
            assert_eq!(gateway.ask("m").answer().await.status, 200);
        }
        assert_eq!(a.counts().arrived, 1, "{ability}");
    }
}

#[tokio::test]
async fn image_request_reaches_the_vision_model() {
    let (a, b) = (Backend::replying("A").await, Backend::replying("B").await);
    let setup = Setup::new()
        .routing("aliases = { eyes = \"llava\" }")
        .backend("a", &a, 4, &["llama3"])
        .backend_with(
            "b",
            &b.url(),
            "models = [{ name = \"llava\", vision = true }]",
        );
    let gateway = setup.start().await;
    for name in ["llava", "eyes"] {
        answer(&gateway, &image(name)).await.assert_ok("B");
    }
}

#[tokio::test]
async fn request_waits_for_capable_endpoint_while_others_idle() {
    let (a, b) = (Backend::replying("A").await, Backend::start().await);
    let models = "max_concurrent = 1\nmodels = [{ name = \"m\", vision = true }]";
    let setup = Setup::new()
        .backend("a", &a, 4, &["m"])
        .backend_with("b", &b.url(), models);
    let gateway = setup.start().await;
    let sent = [(); 2].map(|()| gateway.ask("").body(image("m").to_string()).send());
    gateway.depth(1).await;
    gateway.ask("m").answer().await.assert_ok("A");
    for _ in 0..2 {
        b.next().await.answer("B");
    }
    for sent in sent {
        sent.answer().await.assert_ok("B");
    }
    assert_eq!((a.counts().arrived, b.counts().peak), (1, 1));
}

#[tokio::test]
async fn capability_mismatch_lists_every_missing_capability() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .routing("aliases = { alias = \"llama3:8b\" }")
        .backend("a", &backend, 1, &["llama3:8b"]);
    let gateway = setup.start().await;
    let everything = {
        let mut body = image("llama3:8b");
        let text = long("", 9_000)["messages"][0].clone();
        body["messages"].as_array_mut().unwrap().push(text);
        body["tools"] = tools("")["tools"].clone();
        body["response_format"] = json_mode("")["response_format"].clone();
        body
    };
    for (body, missing) in [
        (image("llama3:8b"), &["vision"][..]),
        (image("alias"), &["vision"]),
        (tools("llama3:8b"), &["tools"]),
        (json_mode("llama3:8b"), &["json_mode"]),
        (
            everything,
            &["vision", "tools", "json_mode", "context_length"],
        ),
    ] {
        let answer = answer(&gateway, &body).await;
        answer.assert_error(400, "capability_mismatch");
        let message = answer.message();
        assert!(message.contains("'llama3:8b'"), "{message}");
        for word in ["vision", "tools", "json_mode", "context_length"] {
            assert_eq!(message.contains(word), missing.contains(&word), "{message}");
        }
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
    assert_eq!(backend.counts().arrived, 0);
}

#[tokio::test]
async fn fallback_serves_capabilities_its_model_lacks() {
    let (a, b) = (Backend::replying("A").await, Backend::replying("B").await);
    let setup = Setup::new()
        .routing("fallbacks = { llama3 = [\"blind\", \"llava\"] }")
        .backend("a", &a, 1, &["llama3", "blind"])
        .backend_with(
            "b",
            &b.url(),
            "models = [{ name = \"llava\", vision = true }]",
        );
    let gateway = setup.start().await;
    gateway.ask("llama3").answer().await.assert_ok("A");
    let seen = answer(&gateway, &image("llama3")).await;
    seen.assert_ok("B");
    assert_eq!(seen.header("x-triage-model"), Some("llava"));
}

#[tokio::test]
async fn a_prompt_is_refused_only_if_it_must_be_too_long() {
    let backend = Backend::replying("fine").await;
    let models = "models = [{ name = \"m\", context_length = 1000 }]";
    let setup = Setup::new().backend_with("a", &backend.url(), models);
    let gateway = setup.start().await;
    let sentence = "Every good gateway should carefully count English words before refusing them. ";
    for (text, passes) in [
        (sentence.repeat(800 / 11 + 1), true),
        ("很".repeat(900), true),
        ("很".repeat(3_900), false),
        ("слово ".repeat(600), true),
        ("слово ".repeat(2_000), false),
        (sentence.repeat(300), false),
    ] {
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": text }] });
        let answer = answer(&gateway, &body).await;
        match passes {
            true => answer.assert_ok("fine"),
            false => {
                answer.assert_error(400, "context_length_exceeded");
                assert_eq!(answer.header("x-should-retry"), Some("false"));
            }
        }
    }
}

#[tokio::test]
async fn each_text_of_a_list_has_a_context_of_its_own() {
    let backend = Backend::replying("fine").await;
    let models = "models = [{ name = \"m\", context_length = 1000 }]";
    let setup = Setup::new().backend_with("a", &backend.url(), models);
    let gateway = setup.start().await;
    let texts = |lengths: &[usize]| {
        let texts = lengths.iter().map(|tokens| "word".repeat(*tokens));
        texts.collect::<Vec<_>>()
    };
    let messages = |lengths: &[usize]| {
        let texts = texts(lengths).into_iter();
        let messages = texts.map(|text| json!({ "role": "user", "content": text }));
        messages.collect::<Vec<_>>()
    };
    for (path, fields, passes) in [
        (
            "/v1/embeddings",
            json!({ "input": texts(&[100; 100]) }),
            true,
        ),
        (
            "/v1/embeddings",
            json!({ "input": vec![vec![7; 100]; 100] }),
            true,
        ),
        ("/v1/embeddings", json!({ "input": vec![7; 10_000] }), false),
        (
            "/v1/embeddings",
            json!({ "input": texts(&[100, 10_000, 100]) }),
            false,
        ),
        (
            "/v1/completions",
            json!({ "prompt": texts(&[900; 10]) }),
            true,
        ),
        ("/api/embed", json!({ "input": texts(&[900; 10]) }), true),
        (
            "/api/embed",
            json!({ "input": texts(&[10_000]), "truncate": false }),
            false,
        ),
        (
            "/v1/responses",
            json!({ "input": messages(&[900; 10]) }),
            false,
        ),
        (
            "/v1/messages",
            json!({ "messages": messages(&[10_000]) }),
            false,
        ),
        (
            "/v1/messages/count_tokens",
            json!({ "messages": messages(&[10_000]) }),
            true,
        ),
        (
            "/tokenize",
            json!({ "prompt": "word".repeat(10_000) }),
            true,
        ),
    ] {
        let mut body = fields;
        body["model"] = "m".into();
        let answer = gateway
            .ask("")
            .path(path)
            .body(body.to_string())
            .answer()
            .await;
        match passes {
            true => assert_eq!(answer.status, 200, "{path}: {answer:?}"),
            false => assert_eq!(answer.status, 400, "{path}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn prompts_that_their_engine_cuts_are_not_refused() {
    let backend = Backend::replying("fine").await;
    let models = "models = [{ name = \"m\", context_length = 1000 }]";
    let setup = Setup::new().backend_with("a", &backend.url(), models);
    let gateway = setup.start().await;
    let chat = "/v1/chat/completions";
    for (path, fields, passes) in [
        ("/api/chat", json!({}), true),
        ("/api/generate", json!({ "truncate": true }), true),
        ("/api/embed", json!({ "truncate": null }), true),
        ("/api/embed", json!({ "truncate": false }), false),
        (
            "/api/chat",
            json!({ "truncate": false, "options": { "num_ctx": 65536 } }),
            true,
        ),
        ("/v1/responses", json!({ "truncation": "auto" }), true),
        ("/v1/responses", json!({ "truncation": "disabled" }), false),
        (
            "/v1/completions",
            json!({ "truncate_prompt_tokens": 400 }),
            true,
        ),
        ("/embed", json!({ "truncate": true }), true),
        (chat, json!({ "transforms": ["middle-out"] }), true),
        (chat, json!({}), false),
    ] {
        let mut body = fields;
        body["model"] = "m".into();
        body["prompt"] = "word".repeat(10_000).into();
        let ask = gateway.ask("").path(path).body(body.to_string());
        let answer = ask.answer().await;
        assert_eq!(answer.status == 200, passes, "{path}: {answer:?}");
    }
}
