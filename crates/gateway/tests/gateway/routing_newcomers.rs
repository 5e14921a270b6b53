//! Tests of backends of unknown health.

use crate::backend::Backend;
use crate::client::PendingResponse;
use crate::process::Setup;

/// A backend that accepts connections and never responds, not even to a health check.
async fn unresponsive() -> (tokio::net::TcpListener, String) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn added_unresponsive_backend_gets_one_request_at_most() {
    let good = Backend::start().await;
    let (_listener, url) = unresponsive().await;
    let setup = || {
        Setup::new()
            .routing("strategy = \"round_robin\"")
            .backend("good", &good, 4, &["m"])
    };
    let gateway = setup().start().await;
    gateway.reload(&setup().backend_checked(
        "mute",
        &url,
        "interval_seconds = 600, timeout_seconds = 600",
    ));
    gateway
        .until("two backends", |state| state.in_flight().len() == 2)
        .await;
    for _ in 0..6 {
        let sent = gateway.ask("m").send();
        good.next().await.answer("good");
        sent.answer().await.assert_ok("good");
    }
    // Once the good one is full, the unresponsive one gets one request.
    let mut held = Vec::new();
    let sent: Vec<PendingResponse> = (0..6).map(|_| gateway.ask("m").send()).collect();
    for _ in 0..4 {
        held.push(good.next().await);
    }
    let state = gateway.until("one waits", |state| state.depth() == 1).await;
    assert_eq!(state.in_flight(), [4, 1]);
    held.into_iter().for_each(|held| held.answer("good"));
    good.next().await.answer("good");
    drop(sent);
}

#[tokio::test]
async fn backend_without_checks_serves_others_beside_a_slow_first_request() {
    for queue in ["", "enabled = false"] {
        let backend = Backend::start().await;
        let setup = Setup::new()
            .queue(queue)
            .backend_at("gpu-1", &backend.url(), 10, &["m"]);
        let gateway = setup.start().await;
        let sent: Vec<PendingResponse> = (0..10).map(|_| gateway.ask("m").send()).collect();
        let slow = backend.next().await;
        for _ in 1..10 {
            backend.next().await.answer("quick");
        }
        slow.answer("slow");
        let mut answers = Vec::new();
        for sent in sent {
            answers.push(sent.answer().await.text().to_owned());
        }
        answers.sort();
        assert_eq!(answers, [&["quick"; 9][..], &["slow"]].concat());
    }
}

#[tokio::test]
async fn unreachable_backend_without_checks_costs_no_request_its_answer() {
    let good = Backend::replying("good").await;
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"")
        .backend_at("gone", &Backend::unreachable(), 40, &["m"])
        .backend_at("good", &good.url(), 40, &["m"]);
    let gateway = setup.start().await;
    let sent: Vec<PendingResponse> = (0..80).map(|_| gateway.ask("m").send()).collect();
    for sent in sent {
        sent.answer().await.assert_ok("good");
    }
    assert_eq!(gateway.state().await.healthy(), [false, true]);
}
