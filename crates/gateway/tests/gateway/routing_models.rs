//! Tests of routing by model name and alias.

use crate::backend::Backend;
use crate::process::{Gateway, Setup};

#[tokio::test]
async fn request_goes_to_the_backend_with_its_model() {
    let (a, b) = (Backend::replying("A").await, Backend::replying("B").await);
    let setup =
        Setup::new()
            .backend("a", &a, 1, &["llama3:8b"])
            .backend("b", &b, 1, &["mistral:7b"]);
    let gateway = setup.start().await;
    for _ in 0..3 {
        gateway.ask("llama3:8b").answer().await.assert_ok("A");
        gateway.ask("mistral:7b").answer().await.assert_ok("B");
    }
}

#[tokio::test]
async fn unknown_model_is_404_naming_it() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("a", &backend, 1, &["llama3:8b"]);
    let gateway = setup.start().await;
    let answer = gateway.ask("gpt-5").answer().await;
    answer.assert_error(404, "model_not_found");
    assert_eq!(answer.message(), "Model 'gpt-5' not found");
    assert_eq!(answer.json()["error"]["param"], "model");
}

#[tokio::test]
async fn alias_is_served_by_its_target_model() {
    let (big, small) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .routing("aliases = { \"gpt-4\" = \"llama3:70b\" }")
        .backend("small", &small, 1, &["llama3:8b"])
        .backend("big", &big, 1, &["llama3:70b"]);
    let gateway = setup.start().await;
    let (answer, asked) = tokio::join!(gateway.ask("gpt-4").answer(), async {
        let arrived = big.next().await;
        let model = arrived.model();
        arrived.answer("big");
        model
    });
    answer.assert_ok("big");
    assert_eq!(asked, "llama3:70b");
    assert_eq!(answer.header("x-triage-model"), Some("llama3:70b"));
    assert_eq!(answer.header("x-triage-endpoint"), Some("big"));
}

#[tokio::test]
async fn alias_of_unknown_model_is_404_naming_both() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .routing("aliases = { \"gpt-4\" = \"llama3:70b\" }")
        .backend("a", &backend, 1, &["llama3:8b"]);
    let answer = setup.start().await.ask("gpt-4").answer().await;
    answer.assert_error(404, "model_not_found");
    let message = answer.message();
    assert!(
        message.contains("gpt-4") && message.contains("llama3:70b"),
        "{message}"
    );
}

#[tokio::test]
async fn alias_cycles_are_rejected_at_start() {
    for (aliases, chain) in [
        ("a = \"a\"", "a → a"),
        ("a = \"b\", b = \"a\"", "a → b → a"),
        ("a = \"b\", b = \"c\", c = \"b\"", "b → c → b"),
    ] {
        let config = format!("[routing]\naliases = {{ {aliases} }}");
        let (message, _) = Gateway::refusal(&config).await;
        assert!(message.contains(chain), "{message}");
    }
}

#[tokio::test]
async fn alias_of_alias_resolves_one_level_with_a_warning() {
    let backend = Backend::replying("C").await;
    let setup = Setup::new()
        .routing("aliases = { a = \"b\", b = \"c\" }")
        .backend("gpu-1", &backend, 1, &["c"]);
    let gateway = setup.start().await;
    gateway.logs(&["WARN", "\"a\"", "\"b\""]).await;
    gateway.ask("b").answer().await.assert_ok("C");
    let answer = gateway.ask("a").answer().await;
    answer.assert_error(404, "model_not_found");
}

#[tokio::test]
async fn model_with_only_unhealthy_endpoints_is_503_not_404() {
    let gone = Backend::unreachable();
    let setup = Setup::new()
        .routing("aliases = { alias = \"m\" }")
        .backend_checked("gpu-1", &gone, "interval_seconds = 3600")
        .backend_checked("gpu-2", &gone, "interval_seconds = 3600");
    let gateway = setup.start().await;
    assert_eq!(gateway.state().await.healthy(), [false, false]);
    for name in ["m", "alias"] {
        let answer = gateway.ask(name).answer().await;
        answer.assert_error(503, "no_healthy_backend");
        assert_eq!(
            answer.message(),
            "No healthy backend available for model 'm'"
        );
    }
}
