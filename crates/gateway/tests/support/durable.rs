//! Gateways that store requests in a folder of their own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::backend::Backend;
use super::client::{Answer, Client, ClientRequest};
use super::process::{Setup, TIMEOUT};

/// A folder for a store, deleted on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-triage-{}-{count}.store", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// A gateway with `[admin]` that stores requests here, with these lines in `[durable]`, and with one slot for `m`.
    pub(crate) fn setup(&self, durable: &str, backend: &Backend) -> Setup {
        Setup::new()
            .top("[admin]\nlisten = \"127.0.0.1:0\"\n")
            .backend("gpu-1", backend, 1, &["m"])
            .sections(&self.section(durable))
    }

    /// The section of a gateway that stores requests here, with these lines.
    pub(crate) fn section(&self, lines: &str) -> String {
        format!("[durable]\npath = {:?}\n{lines}\n", self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // it may never have been made
    }
}

/// A request for `m` that asks for a receipt.
pub(crate) fn stored(client: &Client, label: &str) -> ClientRequest {
    let request = client.ask("m").header("prefer", "respond-async");
    request.label(label)
}

/// The id in a receipt.
#[track_caller]
pub(crate) fn id(receipt: &Answer) -> String {
    assert_eq!(receipt.status, 202, "{receipt:?}");
    let id = receipt.json()["id"].as_str().unwrap().to_owned();
    let location = format!("/requests/{id}");
    assert_eq!(receipt.header("location"), Some(&*location));
    id
}

/// Waits until a request has one of these statuses, and returns it.
pub(crate) async fn until(client: &Client, id: &str, statuses: &[&str]) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        let answer = client.get(&format!("/requests/{id}")).answer().await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let request = answer.json();
        if statuses.contains(&request["status"].as_str().unwrap()) {
            return request;
        }
        assert!(Instant::now() < end, "never {statuses:?}: {request}");
        sleep(Duration::from_millis(5)).await;
    }
}
