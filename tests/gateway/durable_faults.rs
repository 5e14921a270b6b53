//! Each request that was acknowledged ends, and is started as often as is promised, whatever becomes of the gateway.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::backend::Backend;
use crate::process::{Gateway, Setup, TIMEOUT};

/// The number of times that the gateway is stopped in the middle of its work.
fn faults() -> usize {
    let faults = std::env::var("DURABLE_FAULTS").ok();
    faults.and_then(|count| count.parse().ok()).unwrap_or(8)
}

/// The callers and the backend of a gateway that is stopped again and again.
struct Faults {
    folder: PathBuf,
    /// The names of the requests that were answered with 202.
    acknowledged: Mutex<Vec<String>>,
    /// The number of starts of each request, as the backend sees them.
    starts: Arc<Mutex<HashMap<String, u32>>>,
    backend: Backend,
    addr: String,
    is_over: AtomicBool,
}

impl Faults {
    async fn new() -> Arc<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-triage-faults-{}-{count}", std::process::id());
        let starts = Arc::<Mutex<HashMap<String, u32>>>::default();
        let seen = Arc::clone(&starts);
        let backend = Backend::answering(move |arrived| {
            if let Some(id) = arrived.header("x-triage-request-id") {
                *seen.lock().unwrap().entry(id.to_owned()).or_default() += 1;
            }
            tokio::spawn(async move {
                sleep(Duration::from_millis(fastrand::u64(0..20))).await;
                arrived.answer("done");
            });
        })
        .await;
        // A port that stays the same over restarts.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        Arc::new(Self {
            folder: std::env::temp_dir().join(name),
            acknowledged: Mutex::default(),
            starts,
            backend,
            addr,
            is_over: AtomicBool::new(false),
        })
    }

    async fn start(&self, durable: &str) -> Gateway {
        let section = format!("[durable]\npath = {:?}\n{durable}\n", self.folder);
        let setup = Setup::new().listen(&self.addr);
        let setup = setup.backend("b", &self.backend, 4, &["m"]);
        setup.sections(&section).start().await
    }

    /// Sends requests one after the other until the faults are over. What is not acknowledged is forgotten.
    async fn call(self: Arc<Self>) {
        let client = HttpClient::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        while !self.is_over.load(Ordering::Relaxed) {
            let request = Request::post(format!("http://{}/v1/chat/completions", self.addr))
                .header("prefer", "respond-async")
                .header("content-type", "application/json")
                .body(Full::from(r#"{"model": "m", "messages": []}"#))
                .unwrap();
            let Ok(response) = client.request(request).await else {
                sleep(Duration::from_millis(5)).await;
                continue;
            };
            if response.status() != 202 {
                continue;
            }
            let Ok(body) = response.into_body().collect().await else {
                continue;
            };
            let receipt: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
            let id = receipt["id"].as_str().unwrap().to_owned();
            self.acknowledged.lock().unwrap().push(id);
        }
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// Stops the gateway again and again while it works, and returns how each acknowledged request ended and how often it was
/// started.
async fn ends_and_starts(durable: &str) -> Vec<(String, u32)> {
    let faults_of = Faults::new().await;
    let mut callers = tokio::task::JoinSet::new();
    let mut gateway = faults_of.start(durable).await;
    for _ in 0..8 {
        callers.spawn(Arc::clone(&faults_of).call());
    }
    for fault in 0..faults() {
        sleep(Duration::from_millis(fastrand::u64(50..300))).await;
        let signal = if fault % 4 == 3 { "TERM" } else { "KILL" };
        gateway.signal(signal);
        gateway.exit().await;
        gateway = faults_of.start(durable).await;
    }
    faults_of.is_over.store(true, Ordering::Relaxed);
    while callers.join_next().await.is_some() {}
    let acknowledged = faults_of.acknowledged.lock().unwrap().clone();
    assert!(acknowledged.len() > faults(), "{}", acknowledged.len());
    let end = Instant::now() + TIMEOUT;
    let mut ended = Vec::new();
    for id in acknowledged {
        let status = loop {
            let answer = gateway.get(&format!("/requests/{id}")).answer().await;
            assert_eq!(answer.status, 200, "{id} is gone: {answer:?}");
            let status = answer.json()["status"].as_str().unwrap().to_owned();
            if !["queued", "starting", "processing"].contains(&status.as_str()) {
                break status;
            }
            assert!(Instant::now() < end, "{id} is still {status}");
            sleep(Duration::from_millis(5)).await;
        };
        let starts = faults_of.starts.lock().unwrap().get(&id).copied();
        ended.push((status, starts.unwrap_or(0)));
    }
    ended
}

#[tokio::test]
async fn acknowledged_requests_end_and_are_started_once_at_most() {
    for (status, starts) in ends_and_starts("").await {
        match status.as_str() {
            "succeeded" => assert_eq!(starts, 1),
            "failed" => assert!(starts <= 1, "{starts}"),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn acknowledged_requests_are_tried_again_as_often_as_is_said() {
    let retry = "on_crash = \"retry\"\nmax_attempts = 3";
    for (status, starts) in ends_and_starts(retry).await {
        match status.as_str() {
            "succeeded" => assert!((1..=3).contains(&starts), "{starts}"),
            "failed" => assert!(starts <= 3, "{starts}"),
            other => panic!("{other}"),
        }
    }
}
