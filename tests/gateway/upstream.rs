//! How backends are reached: `[upstream]`.

use std::path::PathBuf;

use crate::backend::Backend;
use crate::process::Setup;

/// A file of roots; deleted when it is dropped.
struct Roots(PathBuf);

impl Roots {
    fn new(name: &str, pem: &str) -> Self {
        let name = format!("tower-triage-{}-{name}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, pem).unwrap();
        Self(path)
    }

    fn partition(&self) -> String {
        format!("[upstream]\nca_file = {:?}\n", self.0.to_str().unwrap())
    }
}

impl Drop for Roots {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_backend_of_a_known_root_is_served_and_checked_and_others_get_nothing() {
    let ((known, pem), (unknown, _)) = (Backend::start_tls().await, Backend::start_tls().await);
    let roots = Roots::new("known", &pem);
    let backend = |name, of: &Backend, model| {
        let url = of.url().replace("http://127.0.0.1", "https://localhost");
        format!(
            "[[backends]]\nname = \"{name}\"\nurl = \"{url}\"\nmodels = [{{ name = \"{model}\" }}]\n"
        )
    };
    let setup = Setup::new()
        .more(&roots.partition())
        .more(&backend("known", &known, "m"))
        .more(&backend("unknown", &unknown, "n"));
    let gateway = setup.start().await;
    assert_eq!(gateway.state().await.healthy(), [true, false]);
    let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
        known.next().await.answer("fine");
    });
    answer.must_say("fine");
    let refused = gateway.ask("n").answer().await;
    refused.must_be(503, "no_healthy_backend");
    assert_eq!(unknown.counts().arrived, 0);
}

#[tokio::test]
async fn roots_that_cannot_be_used_are_named() {
    let empty = Roots::new("empty", "");
    let said = Setup::new().more(&empty.partition()).refusal().await;
    for word in ["ca_file", empty.0.to_str().unwrap(), "no PEM certificate"] {
        assert!(said.contains(word), "{word}\n{said}");
    }
    let section = empty.partition();
    drop(empty);
    let said = Setup::new().more(&section).refusal().await;
    assert!(
        said.contains("ca_file") && said.contains("empty.pem"),
        "{said}"
    );
}

#[tokio::test]
async fn a_backend_that_takes_too_long_to_answer_is_given_up() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .more("[upstream]\nfirst_byte_timeout_seconds = 0.1\n")
        .routing("max_retries = 0")
        .backend("slow", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let asked = gateway.ask("m").send();
    let arrived = backend.next().await;
    asked.answer().await.must_be(504, "upstream_timeout");
    arrived.hung_up().await;
    gateway.idle().await;
}

#[tokio::test]
async fn a_backend_that_does_not_say_how_it_is_holds_nothing_up() {
    let backend = Backend::start().await;
    let health = "health = { path = \"/silence\", timeout_seconds = 3600 }\n";
    let lines = "models = [{ name = \"m\" }]\n";
    let silent = format!(
        "[[backends]]\nname = \"a\"\nurl = \"{}\"\n{lines}{health}",
        backend.url()
    );
    let gateway = Setup::new().more(&silent).start().await;
    let _never_answered = backend.next().await;
    let (answer, ()) = tokio::join!(gateway.ask("m").answer(), async {
        backend.next().await.answer("fine");
    });
    answer.must_say("fine");
}
