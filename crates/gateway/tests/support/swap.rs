//! Models that the gateway starts: processes of its own small model server. The test can hold up their start.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::process::{Gateway, Setup, TIMEOUT};

/// A gateway with an admin address, and these lines in `[swap]`.
pub(crate) fn swap(lines: &str) -> Setup {
    let setup = Setup::new().top("[admin]\nlisten = \"127.0.0.1:0\"");
    setup.sections(&format!("[swap]\nmin_loaded_seconds = 0\n{lines}\n"))
}

/// The section of a model that needs all memory of a budget of 1.
pub(crate) fn model(name: &str, cmd: &str) -> String {
    format!("[swap.models.{name:?}]\nmemory = 1.0\ncmd = '''{cmd}'''\n")
}

/// The command line of a model that is ready as soon as it runs.
pub(crate) fn ready(name: &str) -> String {
    format!("${{GATEWAY}} model --name {name} --port ${{PORT}} --answer-ms 0")
}

/// A file that does not exist until the test makes it, deleted on drop.
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-triage-swap-{}-{count}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The command line of a model that is not ready before the file exists.
    pub(crate) fn gates(&self, name: &str) -> String {
        let (file, ready) = (self.0.display(), ready(name));
        format!("sh -c \"while [ ! -e {file} ]; do sleep 0.01; done; exec {ready}\"")
    }

    pub(crate) fn open(&self) {
        std::fs::write(&self.0, "").unwrap();
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Gateway {
    /// The entry of a model in `/admin/models`.
    pub(crate) async fn model(&self, name: &str) -> Value {
        let page = self.admin().get("/admin/models").answer().await;
        assert_eq!(page.status, 200);
        let page = page.json();
        let mut models = page["models"].as_array().unwrap().iter();
        let model = models.find(|model| model["name"] == name);
        model
            .unwrap_or_else(|| panic!("no {name} in {page}"))
            .clone()
    }

    /// Waits until `is` holds for the entry of a model in `/admin/models`.
    pub(crate) async fn until_model(&self, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + TIMEOUT;
        loop {
            let model = self.model(name).await;
            if is(&model) {
                return model;
            }
            assert!(Instant::now() < end, "condition not met in time: {model}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a model is in this state.
    pub(crate) async fn until_state(&self, name: &str, state: &str) -> Value {
        self.until_model(name, |model| model["state"] == state)
            .await
    }

    /// The value of each status in `/v1/models`.
    pub(crate) async fn states(&self) -> Vec<(String, String)> {
        let list = self.get("/v1/models").answer().await.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let models = list["data"].as_array().unwrap().iter();
        models
            .map(|model| (text(&model["id"]), text(&model["status"]["value"])))
            .collect()
    }
}

/// Whether a server listens where the entry of a model says.
pub(crate) async fn listens(model: &Value) -> bool {
    let url = model["url"].as_str().unwrap();
    let addr = url.trim_start_matches("http://").trim_end_matches('/');
    TcpStream::connect(addr).await.is_ok()
}

/// Waits until no server listens there.
pub(crate) async fn until_closed(model: &Value) {
    let closed = async {
        while listens(model).await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let closed = timeout(TIMEOUT, closed).await;
    closed.unwrap_or_else(|_| panic!("still runs: {model}"));
}

/// Reads events until one has `state`; returns the states that were read, by model.
pub(crate) async fn read_events(
    events: &mut Response<Incoming>,
    state: &str,
) -> Vec<(String, String)> {
    let mut text = String::new();
    loop {
        let frame = timeout(TIMEOUT, events.body_mut().frame()).await;
        let frame = frame.unwrap_or_else(|_| panic!("no event {state:?} after {text:?}"));
        let frame = frame.unwrap_or_else(|| panic!("the stream has ended: {text:?}"));
        let data = frame.unwrap().into_data().unwrap();
        text.push_str(std::str::from_utf8(&data).unwrap());
        if text.ends_with("\n\n") {
            let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
            let read: Vec<(String, String)> = data
                .map(|data| {
                    let event: Value = serde_json::from_str(data).unwrap();
                    let text = |key: &str| event[key].as_str().unwrap().to_owned();
                    (text("model"), text("state"))
                })
                .collect();
            if read.iter().any(|(_, read)| read == state) {
                return read;
            }
        }
    }
}
