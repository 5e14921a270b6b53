//! Tests of the log line of a request.

use crate::backend::Backend;
use crate::process::Setup;

#[tokio::test]
async fn request_log_line_records_the_routing_decision() {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new()
        .routing("aliases = { gpt = \"m\" }\nfallbacks = { large = [\"m\"] }")
        .backend("a", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    for (asked, via) in [("m", "direct"), ("gpt", "alias"), ("large", "fallback")] {
        let path = format!("/{asked}");
        let answer = gateway.ask(asked).path(&path).answer().await;
        answer.assert_ok("fine");
        let line = gateway
            .logs(&["request", &format!("path=\"{path}\"")])
            .await;
        for word in [
            "status=200",
            "endpoint=\"a\"",
            "model=\"m\"",
            "strategy=\"smart\"",
            "score=",
            "retries=0",
        ] {
            assert!(line.contains(word), "{word}\n{line}");
        }
        assert!(line.contains(&format!("via=\"{via}\"")), "{line}");
        let other = format!("asked=\"{asked}\"");
        assert_eq!(line.contains(&other), asked != "m", "{line}");
    }
}

#[tokio::test]
async fn rejected_request_is_logged_without_endpoint() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("a", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let answer = gateway.ask("gpt-5").path("/nowhere").answer().await;
    answer.assert_error(404, "model_not_found");
    let line = gateway.logs(&["path=\"/nowhere\"", "status=404"]).await;
    assert!(!line.contains("endpoint="), "{line}");
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_is_named_and_passed_over() {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new()
        .environment("TRIAGE_LOG", "gateway=loud=very")
        .environment("RUST_LOG", "")
        .backend("a", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    gateway.logs(&["WARN", "TRIAGE_LOG", "is ignored"]).await;
    gateway.ask("m").answer().await.assert_ok("fine");
    gateway.logs(&["INFO", "status=200"]).await;
}
