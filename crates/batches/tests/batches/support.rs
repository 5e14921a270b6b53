//! A front with files and batches, a worker, and a backend that the test controls, over one store.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::rejection::Rejection;
use tower_triage::{PriorityLevels, QueueConfig, QueueLayer, WaitingRoomConfig};
use tower_triage_batches::BatchApi;
use tower_triage_durable::{Store, StoreConfig, Worker};
use tower_triage_embedded::EmbeddedStore;

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// A service that notes the requests it gets, and answers each as its body asks.
#[derive(Clone)]
pub(crate) struct Backend(Arc<State>);

struct State {
    calls: Mutex<Vec<(u64, HeaderMap)>>,
    finish: Semaphore,
    prints: AtomicBool,
}

impl Backend {
    fn new(finish: usize) -> Self {
        Self(Arc::new(State {
            calls: Mutex::default(),
            finish: Semaphore::new(finish),
            prints: AtomicBool::new(false),
        }))
    }

    /// Ends so many requests, of those that run or are still to come.
    pub(crate) fn finish(&self, count: usize) {
        self.0.finish.add_permits(count);
    }

    /// Prints the number of each request that is started from now on.
    pub(crate) fn print(&self) {
        self.0.prints.store(true, Relaxed);
    }

    /// The numbers of the requests that were started, in order.
    pub(crate) fn started(&self) -> Vec<u64> {
        let calls = self.0.calls.lock().unwrap();
        calls.iter().map(|(number, _)| *number).collect()
    }

    pub(crate) fn headers(&self, call: usize) -> HeaderMap {
        self.0.calls.lock().unwrap()[call].1.clone()
    }

    async fn respond(self, request: Request<Full<Bytes>>) -> Response<Full<Bytes>> {
        assert_eq!(
            (request.method(), request.uri().path()),
            (&Method::POST, CHAT)
        );
        let headers = request.headers().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let number = body["n"].as_u64().unwrap();
        self.0.calls.lock().unwrap().push((number, headers));
        if self.0.prints.load(Relaxed) {
            println!("started {number}");
        }
        self.0.finish.acquire().await.unwrap().forget();
        let status = body["status"].as_u64().unwrap_or(200) as u16;
        let answer = match body["text"].as_str() {
            Some(text) => text.to_owned(),
            None => format!("{{\n  \"n\": {number}\n}}\n"),
        };
        let mut response = Response::new(Full::from(answer));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    }
}

pub(crate) struct World {
    pub(crate) backend: Backend,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) api: BatchApi,
    coordinator: Option<JoinHandle<()>>,
    worker: JoinHandle<()>,
}

pub(crate) type Front = BoxCloneSyncService<Request<Full<Bytes>>, Response<Bytes>, Infallible>;

impl World {
    /// A world whose backend ends each request at once.
    pub(crate) fn fast() -> Self {
        Self::new(Semaphore::MAX_PERMITS, StoreConfig::default())
    }

    /// A world whose backend ends requests when the test says so.
    pub(crate) fn slow() -> Self {
        Self::new(0, StoreConfig::default())
    }

    pub(crate) fn new(finish: usize, config: StoreConfig) -> Self {
        let store = EmbeddedStore::in_memory(with_levels(config)).unwrap();
        Self::over(Arc::new(store), finish)
    }

    /// A world over this store, whose backend ends so many requests at once.
    pub(crate) fn over(store: Arc<dyn Store>, finish: usize) -> Self {
        let backend = Backend::new(finish);
        let queue = QueueLayer::new(QueueConfig::new(8).levels(levels()));
        let gate = queue.handle().gate().unwrap().clone();
        let service = service_fn({
            let backend = backend.clone();
            move |request| {
                let backend = backend.clone();
                async move { Ok::<_, Infallible>(backend.respond(request).await) }
            }
        });
        let worker = Worker::new(Arc::clone(&store), queue.layer(service)).slots(gate);
        let mut world = Self {
            api: api(&store),
            backend,
            store,
            coordinator: None,
            worker: tokio::spawn(worker.run()),
        };
        world.restart();
        world
    }

    /// Runs no further line.
    pub(crate) fn stop_worker(&self) {
        self.worker.abort();
    }

    /// Starts the coordinator anew, as after a crash of its process.
    pub(crate) fn restart(&mut self) {
        self.restart_with(|api| api);
    }

    /// Starts the coordinator anew, with these settings.
    pub(crate) fn restart_with(&mut self, set: impl FnOnce(BatchApi) -> BatchApi) {
        self.stop();
        self.api = set(api(&self.store));
        self.coordinator = Some(tokio::spawn(self.api.clone().run()));
    }

    pub(crate) fn stop(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            coordinator.abort();
        }
    }

    fn front(&self) -> Front {
        let inner = service_fn(|request: Request<Full<Bytes>>| async move {
            Ok::<_, Infallible>(Response::new(Full::from(request.uri().path().to_owned())))
        });
        let service = self
            .api
            .layer(inner)
            .then(|response: Result<Response<_>, _>| async move {
                let (head, body) = response?.into_parts();
                let body = BodyExt::collect(body).await.unwrap().to_bytes();
                Ok(Response::from_parts(head, body))
            });
        BoxCloneSyncService::new(service)
    }

    /// Sends a request as a tenant.
    pub(crate) async fn send(
        &self,
        tenant: &str,
        request: Request<Full<Bytes>>,
    ) -> Response<Bytes> {
        let mut request = request;
        request
            .headers_mut()
            .insert("x-tenant", tenant.parse().unwrap());
        self.front().oneshot(request).await.unwrap()
    }

    /// Asks for a page as a tenant, with a JSON body unless that is null.
    pub(crate) async fn ask_as(
        &self,
        tenant: &str,
        method: &str,
        path: &str,
        body: Value,
    ) -> (StatusCode, Value) {
        let body = match body {
            Value::Null => Bytes::new(),
            body => body.to_string().into(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Full::from(body))
            .unwrap();
        let response = self.send(tenant, request).await;
        let body = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
        (response.status(), body)
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        self.ask_as("a", method, path, body).await
    }

    /// Gets a page that is there.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, object) = self.ask("GET", path, Value::Null).await;
        assert_eq!(status, 200, "{object}");
        object
    }

    /// Uploads an input file, and returns its name.
    pub(crate) async fn upload(&self, content: &str) -> String {
        let response = self.send("a", upload("batch", content)).await;
        let file: Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(response.status(), 200, "{file}");
        file["id"].as_str().unwrap().to_owned()
    }

    /// Creates a batch of an input file with this content, and returns its name.
    pub(crate) async fn batch(&self, content: &str) -> String {
        self.batch_within(content, "24h").await
    }

    pub(crate) async fn batch_within(&self, content: &str, window: &str) -> String {
        let file = self.upload(content).await;
        let (status, batch) = self
            .ask("POST", "/v1/batches", new_batch(&file, window))
            .await;
        assert_eq!(status, 200, "{batch}");
        assert_eq!(batch["status"], "validating");
        batch["id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn show(&self, batch: &str) -> Value {
        self.get(&format!("/v1/batches/{batch}")).await
    }

    /// Waits until a batch has this status.
    pub(crate) async fn until(&self, batch: &str, status: &str) -> Value {
        for _ in 0..20_000 {
            let object = self.show(batch).await;
            if object["status"] == status {
                return object;
            }
            assert!(object["completed_at"].is_null(), "{object}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the batch never was {status}: {}", self.show(batch).await);
    }

    /// Waits until so many requests were started.
    pub(crate) async fn until_started(&self, count: usize) {
        for _ in 0..20_000 {
            if self.backend.0.calls.lock().unwrap().len() >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{} requests were started", self.backend.started().len());
    }

    /// Waits until no request runs.
    pub(crate) async fn until_none_runs(&self) {
        for _ in 0..20_000 {
            let depths = self.store.depths().await.unwrap();
            if depths.iter().all(|depth| depth.running == 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{} requests were started", self.backend.started().len());
    }

    /// Returns the lines of a file, by their `custom_id`.
    pub(crate) async fn lines(&self, file: &Value) -> Vec<Value> {
        let path = format!(
            "/v1/files/{}/content",
            file.as_str().expect("there is a file")
        );
        let request = Request::get(path).body(Full::default()).unwrap();
        let response = self.send("a", request).await;
        assert_eq!(response.status(), 200);
        let text = std::str::from_utf8(response.body()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
        self.worker.abort();
    }
}

fn levels() -> PriorityLevels {
    PriorityLevels::new(["high", "batch"], "high").unwrap()
}

pub(crate) fn with_levels(config: StoreConfig) -> StoreConfig {
    config.order(WaitingRoomConfig::default().levels(levels()))
}

pub(crate) fn api(store: &Arc<dyn Store>) -> BatchApi {
    BatchApi::new(Arc::clone(store))
        .level(1)
        .file_limit(8 << 20)
        .line_limit(100_000)
        .tenant(|head| {
            let tenant = head.headers.get("x-tenant");
            tenant.map_or(Vec::new(), |tenant| tenant.as_bytes().to_vec())
        })
        .queue(|request| {
            let body: Value = serde_json::from_slice(request.body()).unwrap();
            match body["model"].as_str() {
                Some("m") => Ok("m".to_owned()),
                _ => {
                    let rejection =
                        Rejection::new(StatusCode::NOT_FOUND, "model_not_found", "no such model");
                    Err(rejection.with_param("model"))
                }
            }
        })
}

pub(crate) fn new_batch(file: &str, window: &str) -> Value {
    json!({ "input_file_id": file, "endpoint": CHAT, "completion_window": window })
}

/// An upload of a file.
pub(crate) fn upload(purpose: &str, content: &str) -> Request<Full<Bytes>> {
    let form = form(purpose, content);
    Request::post("/v1/files")
        .header("content-type", "multipart/form-data; boundary=b0undary")
        .body(Full::from(form))
        .unwrap()
}

pub(crate) fn form(purpose: &str, content: &str) -> String {
    let disposition = "content-disposition: form-data";
    format!(
        "--b0undary\r\n{disposition}; name=\"purpose\"\r\n\r\n{purpose}\r\n\
         --b0undary\r\n{disposition}; name=\"file\"; filename=\"in.jsonl\"\r\n\
         content-type: application/jsonl\r\n\r\n{content}\r\n--b0undary--\r\n"
    )
}

/// A line whose request has this number, and more in its body.
pub(crate) fn line_with(number: u64, more: Value) -> String {
    let mut body = json!({ "model": "m", "n": number });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    let line = json!({ "custom_id": format!("line-{number}"), "method": "POST", "url": CHAT, "body": body });
    line.to_string()
}

/// Lines with the numbers from 1 to `count`.
pub(crate) fn lines(count: u64) -> String {
    let lines: Vec<_> = (1..=count)
        .map(|number| line_with(number, json!({})))
        .collect();
    lines.join("\n") + "\n"
}
