//! Tests of the pages that API clients and load balancers ask for.

use serde_json::json;

use crate::backend::Backend;
use crate::process::Setup;

#[tokio::test]
async fn one_model_is_shown_by_its_id() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .routing("aliases = { gpt = \"org/qwen:7b\" }")
        .backend("gpu-1", &backend, 1, &["m", "org/qwen:7b"]);
    let gateway = setup.start().await;
    for (path, id) in [
        ("/v1/models/m", "m"),
        ("/models/m", "m"),
        ("/v1/models/gpt", "gpt"),
        ("/v1/models/org/qwen:7b", "org/qwen:7b"),
        ("/v1/models/org%2Fqwen%3A7b", "org/qwen:7b"),
    ] {
        let answer = gateway.get(path).answer().await;
        assert_eq!(answer.status, 200, "{path}");
        let model = answer.json();
        assert_eq!(
            (&model["id"], &model["object"]),
            (&json!(id), &json!("model"))
        );
        assert!(model["created"].is_u64() && model["owned_by"].is_string());
        let head = gateway.client().head(path).answer().await;
        assert_eq!(head.status, 200, "{path}");
    }
    for path in ["/v1/models/x", "/v1/models/org", "/models/org/"] {
        let answer = gateway.get(path).answer().await;
        answer.assert_error(404, "model_not_found");
        assert_eq!(answer.json()["error"]["param"], "model");
        assert_eq!(answer.header("x-should-retry"), Some("false"));
    }
}

#[tokio::test]
async fn a_tenant_sees_its_own_models_alone() {
    let backend = Backend::start().await;
    let tenant = "[[tenants]]\nname = \"a\"\nkeys = [\"sk-a\"]\nmodels = [\"m\"]\n";
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m", "n"]);
    let gateway = setup.sections(tenant).start().await;
    let get = |path: &str| gateway.get(path).header("x-api-key", "sk-a").answer();
    assert_eq!(get("/v1/models/m").await.status, 200);
    get("/v1/models/n")
        .await
        .assert_error(404, "model_not_found");
    let tags = get("/api/tags").await.json();
    assert_eq!(tags["models"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn ollamas_clients_find_models_and_a_version() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["qwen:7b"]);
    let gateway = setup.start().await;
    let tags = gateway.get("/api/tags").answer().await.json();
    assert_eq!(tags["models"][0]["name"], "qwen:7b");
    assert_eq!(tags["models"][0]["model"], "qwen:7b");
    assert!(tags["models"][0]["details"].is_object());
    let version = gateway.get("/api/version").answer().await.json();
    assert!(version["version"].is_string());
}

#[tokio::test]
async fn readyz_needs_a_healthy_backend() {
    let mut backend = Some(Backend::start().await);
    let url = backend.as_ref().unwrap().url();
    let health = "interval_seconds = 0.02, unhealthy_after = 1, healthy_after = 1";
    let gateway = Setup::new()
        .backend_checked("gpu-1", &url, health)
        .start()
        .await;
    for page in ["/readyz", "/health", "/healthz"] {
        gateway.get(page).answer().await.assert_ok("ok\n");
    }
    backend.take();
    gateway
        .until("unhealthy", |state| !state.healthy()[0])
        .await;
    let answer = gateway.get("/readyz").answer().await;
    assert_eq!(answer.error(), (503, "not_ready".to_owned()));
    assert_eq!(gateway.get("/health").answer().await.status, 200);
}

#[cfg(unix)]
#[tokio::test]
async fn readyz_needs_a_model_that_can_be_started() {
    use crate::swap_support::{model, ready, swap};
    let broken = swap("memory = 1.0").sections(&model("bad", "false"));
    let gateway = broken.start().await;
    assert_eq!(gateway.get("/readyz").answer().await.status, 200);
    let failed = gateway.ask("bad").answer().await;
    failed.assert_error(503, "model_start_failed");
    assert_eq!(gateway.get("/readyz").answer().await.status, 503);

    let both = swap("memory = 1.0")
        .sections(&model("bad", "false"))
        .sections(&model("good", &ready("good")));
    let gateway = both.start().await;
    let failed = gateway.ask("bad").answer().await;
    failed.assert_error(503, "model_start_failed");
    assert_eq!(gateway.get("/readyz").answer().await.status, 200);
}

#[tokio::test]
async fn refusals_tell_sdks_when_to_retry() {
    let (gateway, _busy) = super::pages::full("").await;
    let full = gateway.ask("m").answer().await;
    full.assert_error(503, "queue_full");
    let number = |name| full.header(name).unwrap().parse::<u64>().unwrap();
    assert_eq!(number("retry-after-ms"), 1_000 * number("retry-after"));
    assert!(number("retry-after") <= 120);
    assert_eq!(full.header("x-should-retry"), None);
    for (body, status) in [(r#"{"model":"x"}"#, 404), ("{}", 400), ("[", 400)] {
        let refused = gateway.ask("").body(body).answer().await;
        assert_eq!(refused.status, status, "{body}");
        assert_eq!(refused.header("x-should-retry"), Some("false"), "{body}");
        assert_eq!(refused.header("retry-after-ms"), None);
    }
}

#[tokio::test]
async fn a_long_configured_wait_is_cut_at_two_minutes() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("enabled = false\nretry_after = { mode = \"fixed\", min_seconds = 600 }")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let _running = gateway.ask("m").send();
    let _arrived = backend.next().await;
    let refused = gateway.ask("m").answer().await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("retry-after"), Some("120"));
    assert_eq!(refused.header("retry-after-ms"), Some("120000"));
}

#[tokio::test]
async fn anthropics_path_has_anthropics_refusals() {
    let (gateway, _busy) = super::pages::full("body_limit_bytes = 100").await;
    let ask = |body: &str| gateway.ask("").path("/v1/messages").body(body.to_owned());
    let long = format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "x".repeat(100));
    for (body, status, kind, code) in [
        (r#"{"model":"m"}"#, 503, "overloaded_error", "queue_full"),
        (
            r#"{"model":"x"}"#,
            404,
            "not_found_error",
            "model_not_found",
        ),
        ("{}", 400, "invalid_request_error", "model_missing"),
        ("[", 400, "invalid_request_error", "malformed_body"),
        (&long, 413, "request_too_large", "body_too_large"),
    ] {
        let answer = ask(body).answer().await;
        assert_eq!(answer.status, status, "{body}");
        let error = answer.json();
        assert_eq!(error["type"], "error", "{error}");
        assert_eq!(error["error"]["type"], kind, "{error}");
        assert_eq!(error["error"]["code"], code, "{error}");
        assert!(error["error"]["message"].is_string(), "{error}");
        assert_eq!(answer.header("retry-after").is_some(), status == 503);
        assert_eq!(answer.header("x-should-retry").is_some(), status != 503);
    }
    let counted = gateway
        .ask("m")
        .path("/v1/messages/count_tokens")
        .answer()
        .await;
    assert_eq!(counted.json()["error"]["type"], "overloaded_error");
}

#[tokio::test]
async fn a_backends_own_error_keeps_its_shape() {
    let backend = Backend::answering(|arrived| {
        let mut error = http::Response::new("{\"error\":{\"message\":\"own\",\"code\":\"x\"}}");
        *error.status_mut() = http::StatusCode::BAD_REQUEST;
        arrived.respond(error);
    });
    let backend = backend.await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let answer = gateway.ask("m").path("/v1/messages").answer().await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["message"], "own");
    assert!(answer.json().get("type").is_none());
    let gone = Setup::new().backend_at("gpu-1", &Backend::unreachable(), 1, &["m"]);
    let gateway = gone.start().await;
    let answer = gateway.ask("m").path("/v1/messages").answer().await;
    assert_eq!(
        (answer.status, answer.json()["error"]["type"].clone()),
        (502, json!("api_error"))
    );
}
