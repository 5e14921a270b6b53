//! Workers that are processes of their own, and are killed or stopped.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};

use tokio::time::sleep;
use tower_triage_durable::KeyValues;
use tower_triage_durable::{OnCrash, RequestStatus};

use super::*;

const URL: &str = "TRIAGE_TEST_WORKER_OF";
const RETRIES: &str = "TRIAGE_TEST_WORKER_RETRIES";

/// A worker process, killed when it is dropped.
pub(super) struct Worker(pub(super) Child);

impl Worker {
    fn start(server: &Server, on_crash: OnCrash) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "processes::worker_process", "--nocapture"])
            .env(URL, server.url())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if on_crash != OnCrash::Fail {
            command.env(RETRIES, "1");
        }
        Self(command.spawn().unwrap())
    }

    pub(super) fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn config(on_crash: OnCrash) -> StoreConfig {
    short().on_crash(on_crash)
}

/// The body of a worker process; nothing in the test's own process.
#[test]
fn worker_process() {
    let Ok(url) = std::env::var(URL) else { return };
    let on_crash = match std::env::var(RETRIES) {
        Ok(_) => OnCrash::Retry { max_attempts: 2 },
        Err(_) => OnCrash::Fail,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let config = RedisConfig::new(url).store(config(on_crash));
        let store = RedisStore::connect(config).unwrap();
        loop {
            let backlog = until_done(|| store.backlog()).await;
            for fetched in until_done(|| store.fetch("", 2)).await {
                until_done(|| store.called(&fetched.lease)).await;
                let run = format!("run/{}/{}", fetched.lease.id(), std::process::id());
                until_done(|| store.put(&run, Bytes::new())).await;
                sleep(Duration::from_millis(30)).await;
                let outcome = || responded(200, "by a process");
                until_done(|| store.finish(fetched.lease.clone(), outcome())).await;
            }
            let change = store.changed(backlog.version);
            let _ = tokio::time::timeout(Duration::from_millis(200), change).await;
        }
    });
}

async fn runs(store: &RedisStore) -> HashMap<String, usize> {
    let mut runs = HashMap::new();
    for (key, _) in store.values("run/", None, 10_000).await.unwrap() {
        let id = key.split('/').nth(1).unwrap().to_owned();
        *runs.entry(id).or_default() += 1;
    }
    runs
}

#[tokio::test]
async fn a_killed_worker_costs_only_what_it_ran() {
    let server = Server::start();
    let front = open(&server, config(OnCrash::Fail)).await;
    let mut ids = Vec::new();
    for _ in 0..60 {
        ids.push(store_one(&front, "").await);
    }
    let first = Worker::start(&server, OnCrash::Fail);
    let _second = Worker::start(&server, OnCrash::Fail);
    soon(async {
        while runs(&front).await.len() < 20 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    first.signal("-KILL");
    let mut lost = 0;
    for id in ids {
        soon(front.ended(id)).await.unwrap();
        let info = front.get(id).await.unwrap().unwrap();
        if info.status == RequestStatus::Failed {
            assert_eq!(info.reason.as_deref(), Some("worker_lost"));
            lost += 1;
        } else {
            assert_eq!(info.status, RequestStatus::Succeeded);
        }
    }
    assert!(lost <= 2, "{lost} were lost, though it had two at most");
    assert!(runs(&front).await.values().all(|runs| *runs == 1));
}

#[tokio::test]
async fn a_killed_worker_is_followed_by_another_where_retries_are_allowed() {
    let server = Server::start();
    let on_crash = OnCrash::Retry { max_attempts: 2 };
    let front = open(&server, config(on_crash)).await;
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(store_one(&front, "").await);
    }
    let first = Worker::start(&server, on_crash);
    let _second = Worker::start(&server, on_crash);
    soon(async {
        while runs(&front).await.len() < 10 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    first.signal("-KILL");
    for id in ids {
        soon(front.ended(id)).await.unwrap();
        let info = front.get(id).await.unwrap().unwrap();
        assert_eq!(info.status, RequestStatus::Succeeded);
        assert!(info.attempts <= 2);
    }
    assert!(runs(&front).await.values().all(|runs| *runs <= 2));
}

#[tokio::test]
async fn a_stopped_worker_loses_its_request_and_records_nothing() {
    let server = Server::start();
    let on_crash = OnCrash::Retry { max_attempts: 2 };
    let front = open(&server, config(on_crash)).await;
    let worker = Worker::start(&server, on_crash);
    let id = store_one(&front, "").await;
    soon(async {
        while runs(&front).await.is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    worker.signal("-STOP");
    if front.get(id).await.unwrap().unwrap().status == RequestStatus::Succeeded {
        // It was faster than the signal.
        return;
    }
    let fetched = take(&front).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 2));
    worker.signal("-CONT");
    sleep(Duration::from_millis(300)).await;
    let info = front.get(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Starting);
    assert!(
        front
            .finish(fetched.lease, responded(200, "mine"))
            .await
            .unwrap()
    );
    assert_eq!(front.response(id).await.unwrap().unwrap(), "mine");
}
