//! Tests of environment variables that override or complete the file.

use serde_json::Value;

use crate::backend::{Backend, BackendRequest, status};
use crate::process::{Gateway, Setup};

const STRATEGY: &str = "TRIAGE_ROUTING_STRATEGY";
const MAX_RETRIES: &str = "TRIAGE_ROUTING_MAX_RETRIES";

/// Sends one request and returns its log line.
async fn one_line(gateway: &Gateway, path: &str) -> String {
    let answer = gateway.ask("m").path(path).answer().await;
    answer.assert_ok("fine");
    gateway
        .logs(&["request", &format!("path=\"{path}\"")])
        .await
}

async fn fine() -> Backend {
    Backend::replying("fine").await
}

#[tokio::test]
async fn strategy_variable_overrides_file_also_after_reload() {
    let backend = fine().await;
    let setup = |lines| {
        Setup::new()
            .routing(lines)
            .environment(STRATEGY, "round_robin")
            .backend("a", &backend, 1, &["m"])
    };
    let gateway = setup("strategy = \"priority_only\"").start().await;
    let line = one_line(&gateway, "/v1/completions").await;
    assert!(line.contains("strategy=\"round_robin\""), "{line}");
    gateway.reload(&setup("strategy = \"random\"\nmax_retries = 3"));
    gateway.logs(&["INFO", "[routing] has changed"]).await;
    let line = one_line(&gateway, "/v1/embeddings").await;
    assert!(line.contains("strategy=\"round_robin\""), "{line}");
}

#[tokio::test]
async fn an_unknown_strategy_is_rejected_by_its_source() {
    let choices = "is unknown: the choices are smart, round_robin, priority_only, random,";
    for value in ["fastest", ""] {
        let setup = Setup::new().environment(STRATEGY, value);
        let message = setup.refusal().await;
        let start = format!("{STRATEGY}: {value:?} {choices}");
        assert!(message.starts_with(&start), "{message}");
    }
    let message = Setup::new().routing("strategy = \"best\"").refusal().await;
    let problem = format!("in `routing.strategy`: \"best\" {choices}");
    assert!(message.contains(&problem), "{message}");
}

#[tokio::test]
async fn max_retries_variable_overrides_the_file() {
    let (bad, good) = (Backend::failing(503).await, fine().await);
    let setup = |in_file| {
        let lines =
            format!("strategy = \"priority_only\"\nmax_retries = {in_file}\neject_after = 0");
        let lines_of = |priority| format!("priority = {priority}\nmodels = [{{ name = \"m\" }}]");
        Setup::new()
            .routing(&lines)
            .backend_with("bad", &bad.url(), &lines_of(1))
            .backend_with("good", &good.url(), &lines_of(2))
    };
    let retrying = setup(0).environment(MAX_RETRIES, "1").start().await;
    let line = one_line(&retrying, "/v1/completions").await;
    assert!(line.contains("tries=2"), "{line}");
    let gateway = setup(2).environment(MAX_RETRIES, "0").start().await;
    assert_eq!(gateway.ask("m").answer().await.status, 503);
}

#[tokio::test]
async fn invalid_max_retries_variable_is_rejected_by_name() {
    for value in ["two", "-1", "1.5", "", "99999999999"] {
        let setup = Setup::new().environment(MAX_RETRIES, value);
        let message = setup.refusal().await;
        let start = format!("{MAX_RETRIES} is {value:?}: it must be a whole number");
        assert!(message.starts_with(&start), "{message}");
    }
}

#[tokio::test]
async fn backend_header_reaches_only_that_backend_and_no_log() {
    let (cloud, house) = (Backend::start().await, Backend::start().await);
    let headers = "headers = { authorization = \"Bearer ${CLOUD_KEY}\", x-plain = \"sk-plain\" }";
    let setup = Setup::new()
        .routing("max_retries = 0")
        .environment("CLOUD_KEY", "sk-1234")
        .backend_with(
            "cloud",
            &cloud.url(),
            &format!("{headers}\nmodels = [{{ name = \"m\" }}]"),
        )
        .backend("house", &house, 1, &["n"]);
    let gateway = setup.start().await;
    let ask = |model| {
        gateway
            .ask(model)
            .header("authorization", "Bearer mine")
            .send()
    };
    let seen = |arrived: &BackendRequest| arrived.header("authorization").unwrap().to_owned();

    let (to_cloud, to_house) = (ask("m"), ask("n"));
    let (at_cloud, at_house) = (cloud.next().await, house.next().await);
    assert_eq!(seen(&at_cloud), "Bearer sk-1234");
    assert_eq!(at_cloud.header("x-plain"), Some("sk-plain"));
    assert_eq!(seen(&at_house), "Bearer mine");
    at_cloud.respond(status(401));
    at_house.answer("fine");
    assert_eq!(to_cloud.answer().await.status, 401);
    to_house.answer().await.assert_ok("fine");

    let state: Value = gateway.get("/admin/state").answer().await.json();
    assert!(!state.to_string().contains("sk-"), "{state}");
    gateway.logs(&["status=401"]).await;
    assert_eq!(gateway.logged("sk-"), 0);
}

#[tokio::test]
async fn unset_header_variable_error_names_backend_and_header() {
    let headers = "headers = { authorization = \"Bearer ${NO_SUCH_KEY}\" }";
    let setup = Setup::new().backend_with("cloud", "https://127.0.0.1:9", headers);
    let message = setup.refusal().await;
    for word in ["NO_SUCH_KEY", "\"cloud\"", "`authorization`", ".toml: "] {
        assert!(message.contains(word), "{word}\n{message}");
    }
}
