//! Tests of how many endpoints failed requests can eject.

use crate::backend::{Backend, status};
use crate::process::{Gateway, Setup};

/// A backend that resets the connection for the label `poison`, answers 503 for `bad` and 200 for all others.
async fn fragile() -> Backend {
    let answer = |arrived: crate::backend::BackendRequest| match arrived.label() {
        "poison" => drop(arrived),
        "bad" => arrived.respond(status(503)),
        _ => arrived.answer("fine"),
    };
    Backend::answering(answer).await
}

/// A gateway in front of these backends for `m`. Ejection outlasts the test.
async fn gateway(backends: &[Backend], routing: &str) -> Gateway {
    let mut setup = Setup::new().routing("eject_seconds = 600").routing(routing);
    for (nth, backend) in backends.iter().enumerate() {
        setup = setup.backend(&format!("b{nth}"), backend, 4, &["m"]);
    }
    setup.start().await
}

async fn fail(gateway: &Gateway, label: &str, times: usize) {
    for _ in 0..times {
        let status = gateway.ask("m").label(label).answer().await.status;
        assert!(status >= 500, "{status}");
    }
}

async fn in_service(gateway: &Gateway) -> usize {
    let healthy = gateway.state().await.healthy();
    healthy.into_iter().filter(|healthy| *healthy).count()
}

#[tokio::test]
async fn poison_requests_eject_one_of_three_backends() {
    let backends = [fragile().await, fragile().await, fragile().await];
    let gateway = gateway(&backends, "").await;
    fail(&gateway, "poison", 13).await; // at least 5 of them went to the same backend first
    let tries: usize = backends.iter().map(|b| b.counts().arrived).sum();
    assert_eq!(
        (in_service(&gateway).await, tries),
        (2, 26),
        "one of three is ejected, and each request was retried once"
    );
    for _ in 0..20 {
        gateway.ask("m").answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn ejection_respects_max_percent_and_keeps_last_endpoint() {
    for (label, count, routing, left) in [
        ("poison", 1, "max_retries = 0", 1),
        ("bad", 2, "max_retries = 0", 1),
        ("poison", 3, "max_retries = 0", 2),
        ("poison", 4, "", 2),
        ("bad", 3, "max_retries = 0\nmax_ejected_percent = 100", 1),
        ("bad", 3, "max_retries = 0\nmax_ejected_percent = 0", 3),
    ] {
        let mut backends = Vec::new();
        for _ in 0..count {
            backends.push(fragile().await);
        }
        let gateway = gateway(&backends, routing).await;
        fail(&gateway, label, 40).await;
        assert_eq!(
            in_service(&gateway).await,
            left,
            "{label} {count} {routing}"
        );
        gateway.ask("m").answer().await.assert_ok("fine");
    }
}

#[tokio::test]
async fn invalid_max_ejected_percent_is_rejected_by_name() {
    let backend = fragile().await;
    for value in ["101", "-1", "\"half\""] {
        let setup = Setup::new()
            .routing(&format!("max_ejected_percent = {value}"))
            .backend("b0", &backend, 1, &["m"]);
        let message = setup.refusal().await;
        assert!(
            message.contains("max_ejected_percent`"),
            "{value}: {message}"
        );
        assert!(!message.contains("unknown"), "{value}: {message}");
    }
}
