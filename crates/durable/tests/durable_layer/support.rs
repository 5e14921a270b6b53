//! A front, a worker and a queue around a backend that the test controls.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::{QueueConfig, QueueHandle, QueueLayer};
use tower_triage_durable::{DurableHandle, DurableLayer, Store, StoreConfig, Worker};
use tower_triage_embedded::EmbeddedStore;

pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;
pub(crate) type Backing = BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, Infallible>;
type Front = BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, Infallible>;

/// A service that records its calls, and ends each when the test says so, as the request's headers ask.
#[derive(Clone)]
pub(crate) struct Backend(Arc<State>);

struct State {
    calls: Mutex<Vec<(String, HeaderMap)>>,
    running: AtomicUsize,
    finish: Semaphore,
    events: Mutex<Option<mpsc::UnboundedReceiver<&'static str>>>,
}

impl Backend {
    pub(crate) fn new() -> Self {
        Self(Arc::new(State {
            calls: Mutex::default(),
            running: AtomicUsize::new(0),
            finish: Semaphore::new(0),
            events: Mutex::default(),
        }))
    }

    /// The names of the requests that it was called with, in order.
    pub(crate) fn started(&self) -> Vec<String> {
        let calls = self.0.calls.lock().unwrap();
        calls.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The headers of a call.
    pub(crate) fn headers(&self, call: usize) -> HeaderMap {
        self.0.calls.lock().unwrap()[call].1.clone()
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    /// Ends so many calls, of those that run or are still to come.
    pub(crate) fn finish(&self, count: usize) {
        self.0.finish.add_permits(count);
    }

    /// The next call with `x-stream` sends what is sent here.
    pub(crate) fn stream(&self) -> mpsc::UnboundedSender<&'static str> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.0.events.lock().unwrap() = Some(receiver);
        sender
    }

    pub(crate) fn service(&self) -> Backing {
        let state = Arc::clone(&self.0);
        BoxCloneSyncService::new(service_fn(move |request: Request<Full<Bytes>>| {
            let state = Arc::clone(&state);
            async move { Ok(run(state, request).await) }
        }))
    }
}

struct Running(Arc<State>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

async fn run(state: Arc<State>, request: Request<Full<Bytes>>) -> Response<Body> {
    let headers = request.headers().clone();
    let text = |name: &str| {
        headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    };
    let call = (text("x-name").to_owned(), headers.clone());
    state.calls.lock().unwrap().push(call);
    state.running.fetch_add(1, SeqCst);
    let running = Running(Arc::clone(&state));
    assert!(text("x-panic").is_empty(), "the backend panics");
    if !text("x-stream").is_empty() {
        let events = state.events.lock().unwrap().take().unwrap();
        let events =
            futures_util::stream::unfold((events, running), |(mut events, running)| async {
                let event = events.recv().await?;
                Some((Ok(Frame::data(Bytes::from(event))), (events, running)))
            });
        return Response::builder()
            .header("content-type", "text/event-stream")
            .body(StreamBody::new(events).boxed_unsync())
            .unwrap();
    }
    state.finish.acquire().await.unwrap().forget();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let status: u16 = text("x-status").parse().unwrap_or(200);
    Response::builder()
        .status(status)
        .header("x-backend", "yes")
        .body(
            Full::from(body)
                .map_err(|never| match never {})
                .boxed_unsync(),
        )
        .unwrap()
}

/// A front and a worker over one store, and a queue with the backend behind it.
pub(crate) struct World {
    pub(crate) backend: Backend,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: QueueHandle,
    pub(crate) handle: DurableHandle,
    front: Front,
    service: Backing,
    shutdown: CancellationToken,
}

/// Three levels, so that stored requests can be below the online ones.
pub(crate) fn queue(slots: usize) -> QueueConfig {
    QueueConfig::new(slots).levels(levels())
}

fn levels() -> tower_triage::PriorityLevels {
    tower_triage::PriorityLevels::new(["high", "normal", "batch"], "normal").unwrap()
}

pub(crate) fn store(config: StoreConfig) -> Arc<dyn Store> {
    let order = tower_triage::WaitingRoomConfig::default().levels(levels());
    Arc::new(EmbeddedStore::in_memory(config.order(order)).unwrap())
}

impl World {
    /// A world with so many slots.
    pub(crate) fn new(slots: usize) -> Self {
        Self::with(queue(slots), StoreConfig::default(), |layer| layer)
    }

    pub(crate) fn with(
        config: QueueConfig,
        store_config: StoreConfig,
        set: impl FnOnce(DurableLayer) -> DurableLayer,
    ) -> Self {
        Self::over(store(store_config), config, set)
    }

    /// A world over a store that it may share.
    pub(crate) fn over(
        store: Arc<dyn Store>,
        config: QueueConfig,
        set: impl FnOnce(DurableLayer) -> DurableLayer,
    ) -> Self {
        let backend = Backend::new();
        let classifier = config.classifier().unwrap();
        let layer = QueueLayer::new(config);
        let queue = layer.handle();
        let service = layer.layer(backend.service());
        let service = service.map_response(|response: Response<_>| response.map(unsync));
        let service = BoxCloneSyncService::new(service);
        let durable = DurableLayer::new(Arc::clone(&store));
        let classifier = tower_triage_durable::ClassifyHeaders::new(classifier);
        let durable = set(durable.classify(classifier));
        let front = durable.layer(service.clone());
        let front = front.map_response(|response: Response<_>| response.map(unsync));
        Self {
            handle: durable.handle(),
            front: BoxCloneSyncService::new(front),
            service,
            shutdown: CancellationToken::new(),
            backend,
            store,
            queue,
        }
    }

    /// Starts a worker.
    pub(crate) fn work(&self) -> JoinHandle<()> {
        self.work_with(|worker| worker)
    }

    pub(crate) fn work_with(
        &self,
        set: impl FnOnce(Worker<Backing>) -> Worker<Backing>,
    ) -> JoinHandle<()> {
        let gate = self.queue.gate().unwrap().clone();
        let worker = Worker::new(Arc::clone(&self.store), self.service.clone()).slots(gate);
        tokio::spawn(set(worker.shutdown(self.shutdown.clone())).run())
    }

    pub(crate) fn shut_down(&self) {
        self.shutdown.cancel();
    }

    /// Sends a request, and returns the response with its body not yet read.
    pub(crate) async fn open(&self, request: Ask) -> Response<Body> {
        self.front.clone().oneshot(request.0).await.unwrap()
    }

    pub(crate) async fn send(&self, request: Ask) -> Reply {
        Reply::read(self.open(request).await).await
    }

    /// Sends from a task; aborting it disconnects.
    pub(crate) fn spawn(&self, request: Ask) -> JoinHandle<Reply> {
        let front = self.front.clone();
        tokio::spawn(async move { Reply::read(front.oneshot(request.0).await.unwrap()).await })
    }

    /// Stores a request, and returns its id.
    pub(crate) async fn store(&self, request: Ask) -> String {
        let receipt = self.send(request.header("prefer", "respond-async")).await;
        assert_eq!(receipt.status, 202, "{:?}", receipt.body);
        receipt.json()["id"].as_str().unwrap().to_owned()
    }

    /// The object of a request of the empty tenant.
    pub(crate) async fn show(&self, id: &str) -> Value {
        self.send(get(&format!("/requests/{id}"))).await.json()
    }

    pub(crate) async fn status(&self, id: &str) -> String {
        self.show(id).await["status"].as_str().unwrap().to_owned()
    }

    /// Waits until a request has this status.
    pub(crate) async fn until_status(&self, id: &str, status: &str) {
        for _ in 0..HANG_GUARD {
            if self.status(id).await == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{id} never is {status}, but {}", self.show(id).await);
    }

    /// An operator's request.
    pub(crate) async fn admin(&self, request: Ask) -> Option<Reply> {
        let (head, body) = request.0.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let request = Request::from_parts(head, body);
        let response = self.handle.admin(request).await?;
        Some(Reply::read(response.map(unsync)).await)
    }
}

/// The number of looks after which a test gives up.
const HANG_GUARD: usize = 3_000;

fn unsync<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Send + 'static,
{
    let body = body.map_err(|error| std::io::Error::other(format!("{error:?}")));
    body.boxed_unsync()
}

/// Waits until something that is bound to happen has happened.
pub(crate) async fn until(what: &str, happened: impl Fn() -> bool) {
    for _ in 0..HANG_GUARD {
        if happened() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it never happened that {what}");
}

/// Long enough for a wrong event to happen, on the paused clock.
pub(crate) async fn a_while() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// A request that is about to be sent.
pub(crate) struct Ask(Request<Full<Bytes>>);

pub(crate) fn post(name: &str) -> Ask {
    let request = Request::post("/work").body(Full::from("{}")).unwrap();
    Ask(request).header("x-name", name)
}

pub(crate) fn get(path: &str) -> Ask {
    Ask(Request::get(path).body(Full::default()).unwrap())
}

pub(crate) fn post_to(path: &str, body: impl Into<Bytes>) -> Ask {
    Ask(Request::post(path).body(Full::from(body.into())).unwrap())
}

impl Ask {
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.0.headers_mut().append(name, value.parse().unwrap());
        self
    }

    pub(crate) fn level(self, level: &str) -> Self {
        self.header("x-priority", level)
    }

    pub(crate) fn body(mut self, body: &'static str) -> Self {
        *self.0.body_mut() = Full::from(body);
        self
    }
}

/// A response that was read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    async fn read(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The code in an error's body.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}
