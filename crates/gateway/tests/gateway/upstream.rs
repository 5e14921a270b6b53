//! Tests of `[upstream]`: timeouts and TLS roots.

use std::path::PathBuf;

use crate::backend::Backend;
use crate::process::Setup;

/// A PEM file of roots, deleted on drop.
struct Roots(PathBuf);

impl Roots {
    fn new(name: &str, pem: &str) -> Self {
        let name = format!("tower-triage-{}-{name}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, pem).unwrap();
        Self(path)
    }

    fn section(&self) -> String {
        format!("[upstream]\nca_file = {:?}\n", self.0.to_str().unwrap())
    }
}

impl Drop for Roots {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn ca_file_trusts_its_roots_only() {
    let ((known, pem), (unknown, _)) = (Backend::start_tls().await, Backend::start_tls().await);
    let roots = Roots::new("known", &pem);
    let backend = |name, of: &Backend, model| {
        let url = of.url().replace("http://127.0.0.1", "https://localhost");
        format!(
            "[[backends]]\nname = \"{name}\"\nurl = \"{url}\"\nmodels = [{{ name = \"{model}\" }}]\n"
        )
    };
    let setup = Setup::new()
        .sections(&roots.section())
        .sections(&backend("known", &known, "m"))
        .sections(&backend("unknown", &unknown, "n"));
    let gateway = setup.start().await;
    assert_eq!(gateway.state().await.healthy(), [true, false]);
    let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
        known.next().await.answer("fine");
    });
    answer.assert_ok("fine");
    let refused = gateway.ask("n").answer().await;
    refused.assert_error(503, "no_healthy_backend");
    assert_eq!(unknown.counts().arrived, 0);
}

#[tokio::test]
async fn unusable_ca_file_error_names_its_path() {
    let empty = Roots::new("empty", "");
    let message = Setup::new().sections(&empty.section()).refusal().await;
    for word in ["ca_file", empty.0.to_str().unwrap(), "no PEM certificate"] {
        assert!(message.contains(word), "{word}\n{message}");
    }
    let section = empty.section();
    drop(empty);
    let message = Setup::new().sections(&section).refusal().await;
    assert!(
        message.contains("ca_file") && message.contains("empty.pem"),
        "{message}"
    );
}

#[tokio::test]
async fn first_byte_timeout_is_504_and_cancels_the_request() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .sections("[upstream]\nfirst_byte_timeout_seconds = 0.1\n")
        .routing("max_retries = 0")
        .backend("slow", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let asked = gateway.ask("m").send();
    let arrived = backend.next().await;
    asked.answer().await.assert_error(504, "upstream_timeout");
    arrived.disconnected().await;
    gateway.idle().await;
}

#[tokio::test]
async fn a_silent_backend_ends_its_answer_and_is_disconnected() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .sections("[upstream]\nidle_timeout_seconds = 2\n")
        .backend("silent", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let asked = gateway.ask("m").send();
    let stream = backend.next().await.stream();
    stream.send("half");
    let answer = asked.answer().await;
    assert_eq!(answer.status, 200);
    assert!(answer.text.is_err(), "{answer:?}");
    stream.disconnected().await;
    gateway.idle().await;
}

/// The lines of a backend that serves `m` with this priority.
fn serves_at(priority: u32) -> String {
    format!("max_concurrent = 2\npriority = {priority}\nmodels = [{{ name = \"m\" }}]")
}

#[tokio::test]
async fn an_answer_that_breaks_before_its_first_byte_is_tried_elsewhere() {
    let (broken, fine) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .backend_with("broken", &broken.url(), &serves_at(1))
        .backend_with("fine", &fine.url(), &serves_at(2))
        .routing("strategy = \"priority_only\"");
    let gateway = setup.start().await;
    let asked = gateway.ask("m").send();
    broken.next().await.stream().abort();
    fine.next().await.answer("fine");
    asked.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn an_answer_that_breaks_before_its_first_byte_is_502() {
    let backend = Backend::start().await;
    let gateway = Setup::new()
        .backend("broken", &backend, 1, &["m"])
        .start()
        .await;
    let asked = gateway.ask("m").send();
    backend.next().await.stream().abort();
    asked.answer().await.assert_error(502, "upstream_failed");
    gateway.idle().await;
}

#[tokio::test]
async fn unanswered_health_check_does_not_delay_start() {
    let backend = Backend::start().await;
    let health = "health = { path = \"/silence\", timeout_seconds = 3600 }\n";
    let lines = "models = [{ name = \"m\" }]\n";
    let silent = format!(
        "[[backends]]\nname = \"a\"\nurl = \"{}\"\n{lines}{health}",
        backend.url()
    );
    let gateway = Setup::new().sections(&silent).start().await;
    let _never_answered = backend.next().await;
    let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
        backend.next().await.answer("fine");
    });
    answer.assert_ok("fine");
}

#[tokio::test]
async fn a_base_url_may_end_with_the_version() {
    let backend = Backend::answering(|arrived| {
        let path = arrived.head.uri.path().to_owned();
        arrived.answer(&path);
    })
    .await;
    for (base, path, expected) in [
        ("/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/", "/v1/embeddings", "/v1/embeddings"),
        ("/openai/v1", "/v1/responses", "/openai/v1/responses"),
        ("/v1", "/chat/completions", "/v1/chat/completions"),
        ("/base", "/v1/completions", "/base/v1/completions"),
    ] {
        let url = format!("{}{base}", backend.url());
        let setup = Setup::new().backend_at("gpu-1", &url, 1, &["m"]);
        let gateway = setup.start().await;
        let answer = gateway.ask("m").path(path).answer().await;
        answer.assert_ok(expected);
        let page = gateway.get(&format!("/upstream/m{path}")).answer().await;
        page.assert_ok(expected);
    }
}

#[tokio::test]
async fn a_check_below_the_version_is_sent_to_it_once() {
    let backend = Backend::start().await;
    let url = format!("{}/v1", backend.url());
    let health = "path = \"/v1/models\", interval_seconds = 60";
    let setup = Setup::new().backend_checked("gpu-1", &url, health);
    let (_gateway, ()) = tokio::join!(setup.start(), async {
        let check = backend.next().await;
        assert_eq!(check.head.uri.path(), "/v1/models");
        check.answer("{}");
    });
}
