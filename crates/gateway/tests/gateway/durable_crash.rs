//! Tests of what a gateway that is killed leaves in its store, and of two gateways on one folder.

use crate::backend::Backend;
use crate::durable_support::{Folder, id, stored, until};
use crate::process::Gateway;

/// Kills a gateway, so that it can end nothing.
async fn kill(mut gateway: Gateway) {
    gateway.signal("KILL");
    assert!(!gateway.exit().await.success());
}

#[tokio::test]
async fn queued_requests_run_after_a_kill() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let running = id(&stored(gateway.client(), "running").answer().await);
    let arrived = backend.next().await;
    let mut queued = Vec::new();
    for label in ["1", "2", "3"] {
        queued.push(id(&stored(gateway.client(), label).answer().await));
    }
    kill(gateway).await;
    arrived.disconnected().await;

    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    for (label, id) in ["1", "2", "3"].into_iter().zip(&queued) {
        let arrived = backend.next().await;
        assert_eq!(arrived.label(), label);
        assert_eq!(arrived.header("x-triage-request-id"), Some(&**id));
        assert_eq!(arrived.header("x-triage-attempt"), Some("1"));
        arrived.answer(label);
        until(client, id, &["succeeded"]).await;
    }
    let lost = until(client, &running, &["failed"]).await;
    assert_eq!(lost["reason"], "worker_lost");
    assert_eq!(lost["attempts"], 1);
    let response = client.get(&format!("/requests/{running}/response"));
    response.answer().await.assert_error(502, "worker_lost");
    assert_eq!(backend.more().await, 0);
}

#[tokio::test]
async fn running_request_is_started_again_after_a_kill() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let retry = "on_crash = \"retry\"\nmax_attempts = 2";
    let gateway = folder.setup(retry, &backend).start().await;
    let running = id(&stored(gateway.client(), "").answer().await);
    let first = backend.next().await;
    kill(gateway).await;
    first.disconnected().await;

    let gateway = folder.setup(retry, &backend).start().await;
    let second = backend.next().await;
    assert_eq!(second.header("x-triage-attempt"), Some("2"));
    let metrics = gateway.admin().get("/metrics").answer().await;
    let line = "triage_durable_redeliveries_total 1\n";
    assert!(metrics.text().contains(line), "{metrics:?}");
    kill(gateway).await;
    second.disconnected().await;

    let gateway = folder.setup(retry, &backend).start().await;
    let lost = until(gateway.client(), &running, &["failed"]).await;
    assert_eq!(lost["reason"], "worker_lost");
    assert_eq!(lost["attempts"], 2);
    let metrics = gateway.admin().get("/metrics").answer().await;
    for line in [
        "triage_durable_sweeps_total{queue=\"m\"} 1\n",
        "triage_durable_outcomes_total{queue=\"m\",outcome=\"failed\",reason=\"worker_lost\"} 1\n",
    ] {
        assert!(metrics.text().contains(line), "{metrics:?}");
    }
    assert_eq!(backend.more().await, 0);
}

#[tokio::test]
async fn answers_and_keys_survive_a_kill() {
    let (folder, backend) = (Folder::new(), Backend::replying("fine").await);
    let gateway = folder.setup("", &backend).start().await;
    let keyed = |gateway: &Gateway| {
        let request = stored(gateway.client(), "");
        request.header("idempotency-key", "k").answer()
    };
    let first = id(&keyed(&gateway).await);
    until(gateway.client(), &first, &["succeeded"]).await;
    kill(gateway).await;

    let gateway = folder.setup("", &backend).start().await;
    let response = gateway.get(&format!("/requests/{first}/response"));
    response.answer().await.assert_ok("fine");
    assert_eq!(id(&keyed(&gateway).await), first);
    assert_eq!(backend.counts().arrived, 1);
}

#[tokio::test]
async fn shutdown_ends_what_runs_and_keeps_what_waits() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let mut gateway = folder.setup("", &backend).start().await;
    let running = id(&stored(gateway.client(), "running").answer().await);
    let arrived = backend.next().await;
    let queued = id(&stored(gateway.client(), "queued").answer().await);
    let waiting = gateway.ask("m").header("prefer", "wait=600");
    let waiting = waiting.send();
    while gateway.get("/requests").answer().await.json()["data"][0]["id"] == *queued {}
    gateway.signal("TERM");
    gateway.logs(&["shutting down"]).await;
    arrived.answer("fine");
    let waiting = id(&waiting.answer().await);
    assert!(gateway.exit().await.success());

    let gateway = folder.setup("", &backend).start().await;
    let client = gateway.client();
    let response = client.get(&format!("/requests/{running}/response"));
    response.answer().await.assert_ok("fine");
    let arrived = backend.next().await;
    assert_eq!(arrived.label(), "queued");
    arrived.answer("later");
    until(client, &queued, &["succeeded"]).await;
    backend.next().await.answer("at last");
    until(client, &waiting, &["succeeded"]).await;
}

#[tokio::test]
async fn second_gateway_on_one_folder_is_refused() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let message = folder.setup("", &backend).refusal().await;
    for words in ["[durable]", folder.path(), "another process"] {
        assert!(message.contains(words), "{words}\n{message}");
    }
    id(&stored(gateway.client(), "").answer().await);
}

#[tokio::test]
async fn damaged_store_is_refused_until_it_is_salvaged() {
    let (folder, backend) = (Folder::new(), Backend::start().await);
    let gateway = folder.setup("", &backend).start().await;
    let paused = gateway
        .admin()
        .post("/admin/durable/pause")
        .body(r#"{"queue":"m","reason":"test"}"#)
        .answer()
        .await;
    assert_eq!(paused.status, 200, "{paused:?}");
    let mut waiting = Vec::new();
    for label in 0..20 {
        let receipt = stored(gateway.client(), &label.to_string()).answer().await;
        waiting.push(id(&receipt));
    }
    kill(gateway).await;
    let log = std::path::Path::new(folder.path()).join("log/0.jnl");
    let mut bytes = std::fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2..end / 2 + 512].fill(0);
    std::fs::write(&log, &bytes).unwrap();

    for _ in 0..2 {
        let refusal = folder.setup("", &backend).refusal().await;
        for part in ["is damaged", "0.jnl", "whole commits follow", "`--salvage`"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        assert_eq!(std::fs::read(&log).unwrap(), bytes, "nothing was changed");
    }

    let gateway = folder
        .setup("", &backend)
        .arguments(&["--salvage"])
        .start()
        .await;
    gateway.logs(&["left out"]).await;
    gateway.logs(&["log.damaged-"]).await;
    let mut lost = 0;
    for id in &waiting {
        let answer = gateway.get(&format!("/requests/{id}")).answer().await;
        lost += usize::from(answer.status == 404);
    }
    assert!((1..4).contains(&lost), "{lost} of 20 are lost");
    kill(gateway).await;
    let gateway = folder.setup("", &backend).start().await;
    kill(gateway).await;
}
