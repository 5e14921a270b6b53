//! Each request that was acknowledged ends, and is started as often as is promised, whatever becomes of the gateway, its
//! callers and its backends.

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
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{Backend, BackendRequest};
use crate::process::{Gateway, Setup, TIMEOUT};

/// The number of faults of the gateway, by the environment; the ones of callers and backends go on beside them.
fn faults() -> usize {
    let faults = std::env::var("DURABLE_FAULTS").ok();
    faults.and_then(|count| count.parse().ok()).unwrap_or(8)
}

/// A fault of the gateway.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Terminate,
    /// The process stands still for a while.
    Stop,
    Reload,
}

impl Fault {
    /// Each run of four has one of the cheap ones at the least.
    fn nth(number: usize) -> Self {
        match number % 4 {
            0 | 2 => Self::Kill,
            1 => Self::Stop,
            _ if number % 8 == 3 => Self::Terminate,
            _ => Self::Reload,
        }
    }
}

/// The starts of one request.
#[derive(Debug, Default, Clone, Copy)]
struct Starts {
    /// The number of times that a backend got it.
    count: u32,
    /// The number of the latest attempt.
    last_attempt: u32,
}

/// The callers and the backends of a gateway that is disturbed again and again.
struct Faults {
    folder: PathBuf,
    /// The names of the requests that were answered with 202.
    acknowledged: Mutex<Vec<String>>,
    /// The starts of each request, as the backends see them.
    starts: Arc<Mutex<HashMap<String, Starts>>>,
    backends: [Backend; 2],
    addr: String,
    is_over: AtomicBool,
}

type Http = HttpClient<HttpConnector, Full<Bytes>>;

impl Faults {
    async fn new() -> Arc<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-triage-faults-{}-{count}", std::process::id());
        let starts = Arc::<Mutex<HashMap<String, Starts>>>::default();
        let backend = || {
            let seen = Arc::clone(&starts);
            Backend::answering(move |arrived| {
                if let Some(id) = arrived.header("x-triage-request-id") {
                    let attempt = arrived.header("x-triage-attempt").unwrap();
                    let attempt = attempt.parse().unwrap();
                    let mut seen = seen.lock().unwrap();
                    let starts = seen.entry(id.to_owned()).or_default();
                    starts.count += 1;
                    starts.last_attempt = starts.last_attempt.max(attempt);
                }
                tokio::spawn(respond(arrived));
            })
        };
        let backends = [backend().await, backend().await];
        // A port that stays the same over restarts.
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        Arc::new(Self {
            folder: std::env::temp_dir().join(name),
            acknowledged: Mutex::default(),
            starts,
            backends,
            addr,
            is_over: AtomicBool::new(false),
        })
    }

    async fn start(&self, durable: &str) -> Gateway {
        let section = format!("[durable]\npath = {:?}\n{durable}\n", self.folder);
        let mut setup = Setup::new().listen(&self.addr);
        for (name, backend) in ["a", "b"].into_iter().zip(&self.backends) {
            setup = setup.backend(name, backend, 4, &["m"]);
        }
        setup.sections(&section).start().await
    }

    /// Sends requests until the faults are over. What is not acknowledged is forgotten.
    async fn call(self: Arc<Self>) {
        let client = HttpClient::builder(TokioExecutor::new()).build_http();
        while !self.is_over.load(Ordering::Relaxed) {
            match fastrand::u8(0..8) {
                0 => self.call_and_leave(&client).await,
                _ => self.call_once(&client).await,
            }
            // Fewer in all than the backends have time for, so that no backlog grows.
            sleep(Duration::from_millis(fastrand::u64(5..40))).await;
        }
    }

    fn request(&self, prefer: &str) -> http::request::Builder {
        Request::post(format!("http://{}/v1/chat/completions", self.addr))
            .header("prefer", prefer)
            .header("content-type", "application/json")
    }

    async fn call_once(&self, client: &Http) {
        let request = self.request("respond-async").body(Full::from(BODY));
        let Ok(response) = client.request(request.unwrap()).await else {
            return;
        };
        if response.status() != 202 {
            return;
        }
        let Ok(body) = response.into_body().collect().await else {
            return;
        };
        let receipt: Value = serde_json::from_slice(&body.to_bytes()).unwrap();
        let id = receipt["id"].as_str().unwrap().to_owned();
        self.acknowledged.lock().unwrap().push(id);
    }

    /// Sends a request, and disconnects before its answer. Every other one wants to be cancelled then.
    async fn call_and_leave(&self, client: &Http) {
        let cancels = if fastrand::bool() { "true" } else { "false" };
        let request = self
            .request("wait=5")
            .header("x-cancel-on-disconnect", cancels);
        let call = client.request(request.body(Full::from(BODY)).unwrap());
        _ = timeout(Duration::from_millis(fastrand::u64(0..20)), call).await;
    }
}

const BODY: &str = r#"{"model": "m", "messages": []}"#;

impl Drop for Faults {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// Answers a request, or breaks off before or in the middle of the response.
async fn respond(arrived: BackendRequest) {
    sleep(Duration::from_millis(fastrand::u64(0..20))).await;
    match fastrand::u8(0..16) {
        0 => drop(arrived),
        1 => {
            let stream = arrived.stream();
            stream.send("data: 1\n\n");
            stream.abort();
        }
        _ => arrived.answer("done"),
    }
}

/// The ends of the requests of one run.
struct Ends {
    /// How each acknowledged request ended, and its starts.
    acknowledged: Vec<(String, Starts)>,
    /// The starts of all requests, acknowledged or not.
    starts: Vec<Starts>,
}

/// Disturbs the gateway again and again while it works, and returns how the requests ended.
async fn run(durable: &str) -> Ends {
    let run = Faults::new().await;
    let mut callers = JoinSet::new();
    let mut gateway = run.start(durable).await;
    for _ in 0..8 {
        callers.spawn(Arc::clone(&run).call());
    }
    for number in 0..faults() {
        sleep(Duration::from_millis(fastrand::u64(20..150))).await;
        match Fault::nth(number) {
            fault @ (Fault::Kill | Fault::Terminate) => {
                let is_kill = matches!(fault, Fault::Kill);
                gateway.signal(if is_kill { "KILL" } else { "TERM" });
                gateway.exit().await;
                gateway = run.start(durable).await;
            }
            Fault::Stop => {
                gateway.signal("STOP");
                sleep(Duration::from_millis(fastrand::u64(20..100))).await;
                gateway.signal("CONT");
            }
            Fault::Reload => gateway.signal("HUP"),
        }
    }
    run.is_over.store(true, Ordering::Relaxed);
    while callers.join_next().await.is_some() {}
    let statuses = statuses_at_end(&gateway).await;
    let acknowledged = run.acknowledged.lock().unwrap().clone();
    let starts = run.starts.lock().unwrap();
    assert!(acknowledged.len() > faults(), "{}", acknowledged.len());
    println!(
        "{} acknowledged, {} stored, {} started",
        acknowledged.len(),
        statuses.len(),
        starts.len()
    );
    let of_each = acknowledged.into_iter().map(|id| {
        let status = statuses.get(&id);
        let status = status.unwrap_or_else(|| panic!("{id} is gone"));
        (status.clone(), starts.get(&id).copied().unwrap_or_default())
    });
    Ends {
        acknowledged: of_each.collect(),
        starts: starts.values().copied().collect(),
    }
}

/// Waits until all requests have ended, and returns how, by their names.
async fn statuses_at_end(gateway: &Gateway) -> HashMap<String, String> {
    let end = Instant::now() + TIMEOUT;
    for status in ["queued", "starting", "processing"] {
        let path = format!("/requests?limit=1&status={status}");
        while gateway.get(&path).answer().await.json()["data"] != Value::Array(Vec::new()) {
            assert!(Instant::now() < end, "some are still {status}");
            sleep(Duration::from_millis(20)).await;
        }
    }
    let mut statuses = HashMap::new();
    let mut path = "/requests?limit=100".to_owned();
    loop {
        let page = gateway.get(&path).answer().await.json();
        for request in page["data"].as_array().unwrap() {
            let text = |key: &str| request[key].as_str().unwrap().to_owned();
            statuses.insert(text("id"), text("status"));
        }
        if page["has_more"] != true {
            return statuses;
        }
        path = format!(
            "/requests?limit=100&after={}",
            page["last_id"].as_str().unwrap()
        );
    }
}

#[tokio::test]
async fn acknowledged_requests_end_and_are_started_once_at_most() {
    let ends = run("").await;
    for (status, starts) in ends.acknowledged {
        match status.as_str() {
            "succeeded" => assert_eq!(starts.count, 1),
            "failed" => {}
            other => panic!("{other}"),
        }
    }
    assert!(ends.starts.iter().all(|starts| starts.count == 1));
}

#[tokio::test]
async fn acknowledged_requests_are_tried_again_as_often_as_is_said() {
    let ends = run("on_crash = \"retry\"\nmax_attempts = 3").await;
    for (status, starts) in ends.acknowledged {
        match status.as_str() {
            "succeeded" => assert!(starts.count >= 1),
            "failed" => {}
            other => panic!("{other}"),
        }
    }
    // Within one attempt, the router may try another backend.
    assert!(ends.starts.iter().all(|starts| starts.last_attempt <= 3));
}
