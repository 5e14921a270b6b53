//! Tests of gateways that share their stored requests in Redis.

use crate::backend::Backend;
use crate::client::Client;
use crate::durable_support::{id, stored, until};
use crate::process::{Setup, binary};
use crate::redis_server::Server;

fn setup(role: &str, url: &str, lines: &str) -> Setup {
    let section =
        format!("[durable]\nstore = \"redis\"\nurl = {url:?}\nrole = {role:?}\n{lines}\n");
    let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    Setup::new().top(admin).sections(&section)
}

#[tokio::test]
async fn one_gateway_stores_and_another_one_runs() {
    let (redis, backend) = (Server::start(), Backend::start().await);
    let front = setup("front", &redis.url(), "").start().await;
    let worker = setup("worker", &redis.url(), "");
    let worker = worker.backend("gpu-1", &backend, 1, &["m"]).start().await;
    let receipt = id(&stored(front.client(), "").answer().await);
    let arrived = backend.next().await;
    assert_eq!(arrived.header("x-triage-request-id"), Some(&*receipt));
    arrived.answer("fine");
    until(front.client(), &receipt, &["succeeded"]).await;
    let response = front.get(&format!("/requests/{receipt}/response"));
    response.answer().await.assert_ok("fine");
    let waiting = front.ask("m").send();
    backend.next().await.answer("stored, too");
    waiting.answer().await.assert_ok("stored, too");
    worker
        .get("/requests")
        .answer()
        .await
        .assert_error(404, "not_found");
    let seen = worker.admin().get(&format!("/admin/requests/{receipt}"));
    assert_eq!(seen.answer().await.json()["status"], "succeeded");
}

#[test]
fn two_machines_lose_nothing_while_things_are_killed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/two-machines");
    let mut script = std::process::Command::new(format!("{folder}/kill-things"));
    script.arg("--gateway").arg(binary());
    script.args(["--seconds", "3", "--lease-seconds", "1"]);
    let output = script.output().expect("Python 3 must be installed");
    let problems = String::from_utf8_lossy(&output.stderr);
    let counts = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{counts}\n{problems}");
    assert!(counts.contains("run more than once: 0"), "{counts}");
}

#[tokio::test]
async fn without_redis_only_stored_requests_are_refused() {
    let (mut redis, backend) = (Server::start(), Backend::replying("fine").await);
    redis.kill();
    let address = redis.url().replace("redis://", "");
    let url = format!("redis://:hunter2@{address}");
    let gateway = setup("both", &url, "").backend("gpu-1", &backend, 1, &["m"]);
    let gateway = gateway.start().await;
    let refused = stored(gateway.client(), "").answer().await;
    refused.assert_error(503, "store_unavailable");
    gateway.ask("m").answer().await.assert_ok("fine");
    let metrics = gateway.admin().get("/metrics").answer().await;
    assert!(
        metrics.text().contains("triage_durable_store_up 0\n"),
        "{metrics:?}"
    );
    gateway.logs(&["WARN", &address]).await;
    assert_eq!(gateway.logged("hunter2"), 0);
}

#[tokio::test]
async fn a_redis_is_replaced_while_its_requests_are_finished() {
    let (old, new) = (Server::start(), Server::start());
    let before = setup("front", &old.url(), "").start().await;
    let first = id(&stored(before.client(), "").answer().await);
    let keyed = |gateway: &Client| stored(gateway, "").header("idempotency-key", "k");
    let second = id(&keyed(before.client()).answer().await);
    drop(before);
    let backend = Backend::start().await;
    let drain = format!("drain_url = {:?}", old.url());
    let after = setup("both", &new.url(), &drain);
    let after = after.backend("gpu-1", &backend, 1, &["m"]).start().await;
    assert_eq!(id(&keyed(after.client()).answer().await), second);
    let third = id(&stored(after.client(), "").answer().await);
    for _ in 0..3 {
        backend.next().await.answer("fine");
    }
    for id in [&first, &second, &third] {
        until(after.client(), id, &["succeeded"]).await;
        let response = after.get(&format!("/requests/{id}/response"));
        response.answer().await.assert_ok("fine");
    }
    let list = after.get("/requests").answer().await.json();
    let listed: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|request| &request["id"])
        .collect();
    assert_eq!(listed, [&third, &second, &first]);
    after
        .logs(&["INFO", "the Redis of `drain_url` is drained"])
        .await;
    let metrics = after.admin().get("/metrics").answer().await;
    assert!(
        metrics
            .text()
            .contains("triage_durable_drain_remaining 0\n"),
        "{metrics:?}"
    );
}
