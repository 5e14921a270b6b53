//! Tests of loads that no request waits for any more, and of loads that are given up.

use std::path::Path;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::process::{Gateway, TIMEOUT};
use crate::swap::assert_served;
use crate::swap_support::{TempFile, model, ready, swap};

/// The command line of a model that never gets ready, and writes to `asked` when its signal asks it to stop. It writes to
/// `runs` first.
fn waits(runs: &TempFile, asked: &TempFile) -> String {
    let (runs, asked) = (runs.path().display(), asked.path().display());
    format!(
        "sh -c 'trap \"echo >> {asked}; exit\" TERM; touch {runs}; while :; do sleep 0.01; done'"
    )
}

async fn until_exists(path: &Path) {
    let exists = async {
        while !path.exists() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let exists = timeout(TIMEOUT, exists).await;
    exists.unwrap_or_else(|_| panic!("{} is missing", path.display()));
}

/// Loads the model `a`, and waits until its process runs.
async fn loading(runs: &TempFile, asked: &TempFile, lines: &str) -> Gateway {
    let command = model("a", &waits(runs, asked)) + lines;
    let gateway = swap("memory = 1.0").sections(&command).start().await;
    gateway.admin().post("/admin/models/a/load").answer().await;
    until_exists(runs.path()).await;
    gateway
}

async fn unload(gateway: &Gateway, query: &str) {
    let path = format!("/admin/models/a/unload{query}");
    assert_eq!(gateway.admin().post(&path).answer().await.status, 202);
    gateway.until_state("a", "unloaded").await;
}

#[tokio::test]
async fn an_unload_asks_a_model_that_is_being_loaded_to_stop() {
    let [runs, asked] = [(); 2].map(|()| TempFile::new());
    let gateway = loading(&runs, &asked, "").await;
    unload(&gateway, "").await;
    assert!(asked.path().exists());
}

#[tokio::test]
async fn an_unload_with_kill_ends_a_load_without_its_signal() {
    let [runs, asked] = [(); 2].map(|()| TempFile::new());
    let gateway = loading(&runs, &asked, "").await;
    unload(&gateway, "?kill=true").await;
    assert!(!asked.path().exists());
}

#[tokio::test]
async fn a_shutdown_asks_a_model_that_is_being_loaded_to_stop() {
    let [runs, asked] = [(); 2].map(|()| TempFile::new());
    let mut gateway = loading(&runs, &asked, "").await;
    gateway.signal("TERM");
    gateway.exit().await;
    assert!(asked.path().exists());
}

#[tokio::test]
async fn models_are_asked_to_stop_though_the_grace_period_is_over() {
    let [runs, asked] = [(); 2].map(|()| TempFile::new());
    let setup = swap("memory = 1.0").sections(&model("a", &waits(&runs, &asked)));
    let mut gateway = setup.arguments(&["--grace", "0"]).start().await;
    gateway.admin().post("/admin/models/a/load").answer().await;
    until_exists(runs.path()).await;
    gateway.signal("TERM");
    gateway.exit().await;
    assert!(asked.path().exists());
}

#[tokio::test]
async fn a_load_that_takes_too_long_is_asked_to_stop() {
    let [runs, asked] = [(); 2].map(|()| TempFile::new());
    let gateway = loading(&runs, &asked, "start_timeout_seconds = 5\n").await;
    gateway.until_state("a", "failed").await;
    assert!(asked.path().exists());
}

#[tokio::test]
async fn a_client_with_a_timeout_shorter_than_the_load_is_served_in_the_end() {
    let gate = TempFile::new();
    let setup = swap("memory = 1.0").sections(&model("a", &gate.gates("a")));
    let gateway = setup.start().await;
    for _ in 0..3 {
        let sent = gateway.ask("a").send();
        gateway
            .until_model("a", |a| a["state"] == "loading" && a["waiting"] == 1)
            .await;
        sent.disconnect();
        gateway
            .until_model("a", |a| a["state"] == "loading" && a["waiting"] == 0)
            .await;
    }
    gate.open();
    gateway.until_state("a", "loaded").await;
    assert_served(&gateway.ask("a").answer().await, "a");
    assert_eq!(gateway.logged("model is being loaded"), 1);
}

#[tokio::test]
async fn a_load_without_a_request_gives_its_memory_to_another_model() {
    let never = TempFile::new();
    let setup = swap("memory = 1.0")
        .sections(&model("a", &never.gates("a")))
        .sections(&model("b", &ready("b")));
    let gateway = setup.start().await;
    let sent = gateway.ask("a").send();
    gateway
        .until_model("a", |a| a["state"] == "loading" && a["waiting"] == 1)
        .await;
    sent.disconnect();
    gateway.until_model("a", |a| a["waiting"] == 0).await;
    assert_served(&gateway.ask("b").answer().await, "b");
    gateway.until_state("a", "unloaded").await;
}
