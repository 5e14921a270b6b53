//! Tests of the errors of the gateway in the shapes of the APIs that clients speak.

use serde_json::{Value, json};

use crate::backend::Backend;
use crate::durable_support::{Folder, id, until};
use crate::process::{Gateway, Setup};

async fn start(backend: &Backend) -> Gateway {
    let models = "models = [{ name = \"m\", context_length = 1000 }]";
    let setup = Setup::new().backend_with("gpu-1", &backend.url(), models);
    setup.start().await
}

/// A request of about 3,000 tokens.
fn long() -> Value {
    let text = "word".repeat(3_000);
    json!({ "model": "m", "messages": [{ "role": "user", "content": text }], "truncate": false })
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_told_as_each_api_tells_it() {
    let backend = Backend::replying("fine").await;
    let gateway = start(&backend).await;
    let ask = |path: &str| gateway.ask("").path(path).body(long().to_string()).answer();

    let openai = ask("/v1/chat/completions").await;
    openai.assert_error(400, "context_length_exceeded");
    assert_eq!(openai.header("x-should-retry"), Some("false"));
    assert_eq!(openai.json()["error"]["type"], "invalid_request_error");
    assert_eq!(
        openai.message(),
        "This model's maximum context length is 1000 tokens. However, your messages resulted in 3000 tokens. Please reduce \
         the length of the messages."
    );

    let anthropic = ask("/v1/messages").await;
    assert_eq!(anthropic.status, 400);
    let error = json!({
        "type": "invalid_request_error",
        "message": "prompt is too long: 3000 tokens > 1000 maximum",
        "code": "context_length_exceeded",
    });
    assert_eq!(anthropic.json(), json!({ "type": "error", "error": error }));

    let ollama = ask("/api/chat").await;
    assert_eq!(ollama.status, 400);
    let message = "the input length exceeds the context length: 3000 tokens > 1000 maximum";
    assert_eq!(ollama.json(), json!({ "error": message }));
    assert_eq!(backend.counts().arrived, 0);
}

#[tokio::test]
async fn ollamas_paths_have_ollamas_errors() {
    let backend = Backend::replying("fine").await;
    let tenant = "[[tenants]]\nname = \"a\"\nkeys = [\"sk-a\"]\n";
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.sections(tenant).start().await;
    for path in ["/api/chat", "/api/generate", "/api/embed", "/api/show"] {
        let ask = gateway.ask("nope").path(path);
        let unknown = ask.header("x-api-key", "sk-a").answer().await;
        assert_eq!(unknown.status, 404, "{path}");
        assert_eq!(unknown.json(), json!({ "error": "Model 'nope' not found" }));
        let nobody = gateway.ask("m").path(path).answer().await;
        assert_eq!(nobody.status, 401, "{path}");
        assert!(nobody.json()["error"].is_string(), "{nobody:?}");
    }
    let malformed = gateway.ask("").path("/api/chat").body("{");
    let malformed = malformed.header("x-api-key", "sk-a").answer().await;
    assert_eq!(malformed.status, 400);
    assert!(malformed.json()["error"].is_string(), "{malformed:?}");
    let page = gateway.get("/api/nothing").header("x-api-key", "sk-a");
    let page = page.answer().await;
    assert_eq!(page.status, 404);
    assert!(page.json()["error"].is_string(), "{page:?}");
}

#[tokio::test]
async fn a_stored_request_fails_in_the_shape_of_its_api() {
    let folder = Folder::new();
    let backend = Backend::replying("fine").await;
    let models = "models = [{ name = \"m\", context_length = 1000 }]";
    let gateway = Setup::new()
        .backend_with("gpu-1", &backend.url(), models)
        .sections(&folder.section(""))
        .start()
        .await;
    let client = gateway.client();
    for (path, is_text) in [("/api/chat", true), ("/v1/chat/completions", false)] {
        let ask = client.ask("m").path(path).body(long().to_string());
        let receipt = ask.header("prefer", "respond-async").answer().await;
        let id = id(&receipt);
        until(client, &id, &["failed"]).await;
        let answer = client.get(&format!("/requests/{id}/response"));
        let answer = answer.answer().await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
        assert_eq!(answer.json()["error"].is_string(), is_text, "{answer:?}");
    }
}
