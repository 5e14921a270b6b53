//! `QueueLayer` in a tonic server, called by a tonic client over a real socket.
#![cfg(not(loom))]

#[cfg(feature = "tonic")]
mod observer;
mod optional;
mod overload;
mod per_key;
mod read_ahead;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tonic::body::Body;
use tonic::codec::Streaming;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::{Layer, Service, service_fn};
use tower_triage::rejection::RetryAfter;
use tower_triage::{QueueConfig, QueueHandle, QueueLayer};

/// The request and the response.
#[derive(Clone, PartialEq, prost::Message)]
struct Note {
    #[prost(string, tag = "1")]
    text: String,
}

fn note(text: impl Into<String>) -> Note {
    Note { text: text.into() }
}

type Item = Result<Note, Status>;

/// `Say` returns when the test says so; `Count` streams what the test writes.
#[derive(Clone)]
struct Notes {
    finish: Arc<Semaphore>,
    streams: mpsc::UnboundedSender<mpsc::UnboundedSender<Item>>,
}

impl NamedService for Notes {
    const NAME: &'static str = "test.Notes";
}

impl Service<http::Request<Body>> for Notes {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let notes = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Note, Note>::default());
            Ok(match request.uri().path() {
                "/test.Notes/Say" => {
                    let say = service_fn(move |asked| notes.clone().say(asked));
                    grpc.unary(say, request).await
                }
                "/test.Notes/Count" => {
                    let count = service_fn(move |_: Request<Note>| {
                        std::future::ready(Ok::<_, Status>(Response::new(notes.count())))
                    });
                    grpc.server_streaming(count, request).await
                }
                path => panic!("{path} is not called"),
            })
        })
    }
}

impl Notes {
    async fn say(self, asked: Request<Note>) -> Result<Response<Note>, Status> {
        let text = asked.into_inner().text;
        if text == "fail" {
            let mut metadata = MetadataMap::new();
            metadata.insert("x-cause", "the test wants it".parse().unwrap());
            let status = Status::with_metadata(Code::NotFound, "no such note", metadata);
            return Err(status);
        }
        if text != "now" {
            self.finish.acquire().await.unwrap().forget();
        }
        Ok(Response::new(note(text)))
    }

    fn count(&self) -> BoxStream<'static, Item> {
        let (items, written) = mpsc::unbounded_channel();
        self.streams.send(items).unwrap();
        let next = |mut written: mpsc::UnboundedReceiver<Item>| async move {
            Some((written.recv().await?, written))
        };
        stream::unfold(written, next).boxed()
    }
}

struct App {
    channel: Channel,
    handle: QueueHandle,
    finish: Arc<Semaphore>,
    streams: mpsc::UnboundedReceiver<mpsc::UnboundedSender<Item>>,
}

impl App {
    async fn start(config: QueueConfig) -> Self {
        let layer = QueueLayer::new(config);
        Self::serve(layer.handle(), |notes, incoming| {
            let server = Server::builder().layer(layer).add_service(notes);
            tokio::spawn(server.serve_with_incoming(incoming));
        })
        .await
    }

    /// A server as `spawn` makes it of a service, with the waiting room of `handle` in front of that.
    async fn serve(handle: QueueHandle, spawn: impl FnOnce(Notes, TcpIncoming)) -> Self {
        let finish = Arc::new(Semaphore::new(0));
        let (started, streams) = mpsc::unbounded_channel();
        let notes = Notes {
            finish: Arc::clone(&finish),
            streams: started,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        spawn(notes, TcpIncoming::from(listener));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        Self {
            channel,
            handle,
            finish,
            streams,
        }
    }

    /// An app with its only slot taken.
    async fn busy(config: QueueConfig) -> (Self, tokio::task::JoinHandle<Said>) {
        let app = Self::start(config).await;
        let running = tokio::spawn(say(&app, "running"));
        app.until(|depth, running| (depth, running) == (0, 1)).await;
        (app, running)
    }

    async fn until(&self, there: impl Fn(usize, usize) -> bool) {
        for _ in 0..60_000 {
            let status = self.handle.status();
            if there(status.depth, status.running) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it never came to that: {:?}", self.handle.status());
    }

    async fn count(&mut self) -> (Streaming<Note>, mpsc::UnboundedSender<Item>) {
        let mut grpc = client(&self.channel).await;
        let path = PathAndQuery::from_static("/test.Notes/Count");
        let codec = ProstCodec::<Note, Note>::default();
        let request = Request::new(note(""));
        let response = grpc.server_streaming(request, path, codec).await.unwrap();
        let items = self.streams.recv().await.unwrap();
        (response.into_inner(), items)
    }
}

type Said = Result<Response<Note>, Status>;

async fn client(channel: &Channel) -> tonic::client::Grpc<Channel> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    grpc
}

fn say(app: &App, text: &'static str) -> impl Future<Output = Said> + Send + use<> {
    ask(app.channel.clone(), Request::new(note(text)))
}

async fn ask(channel: Channel, request: Request<Note>) -> Said {
    let path = PathAndQuery::from_static("/test.Notes/Say");
    let codec = ProstCodec::<Note, Note>::default();
    client(&channel).await.unary(request, path, codec).await
}

#[tokio::test]
async fn a_call_that_finds_a_slot_passes_unchanged() {
    let app = App::start(QueueConfig::new(1)).await;
    let said = say(&app, "now").await.unwrap();
    assert_eq!(said.get_ref().text, "now");
    assert!(said.metadata().get("server-timing").is_none());
    assert_eq!(
        said.metadata().get("grpc-status").unwrap(),
        "0",
        "from the trailers"
    );

    let failed = say(&app, "fail").await.unwrap_err();
    assert_eq!(
        (failed.code(), failed.message()),
        (Code::NotFound, "no such note")
    );
    assert_eq!(
        failed.metadata().get("x-cause").unwrap(),
        "the test wants it"
    );
    app.until(|depth, running| (depth, running) == (0, 0)).await;
}

#[tokio::test]
async fn a_saturated_server_is_unavailable_with_retry_pushback() {
    let config = QueueConfig::new(1)
        .max_size(1)
        .retry_after(RetryAfter::fixed(3));
    let (app, running) = App::busy(config).await;
    let waiting = tokio::spawn(say(&app, "waiting"));
    app.until(|depth, _| depth == 1).await;

    let refused = say(&app, "refused").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("the waiting room is full"));
    let pushback = refused.metadata().get("grpc-retry-pushback-ms").unwrap();
    assert_eq!(pushback, "3000");

    app.finish.add_permits(2);
    assert_eq!(running.await.unwrap().unwrap().get_ref().text, "running");
    assert_eq!(waiting.await.unwrap().unwrap().get_ref().text, "waiting");
    app.until(|depth, running| (depth, running) == (0, 0)).await;
}

#[tokio::test]
async fn a_deadline_ends_the_wait_on_the_server() {
    let (app, running) = App::busy(QueueConfig::new(1)).await;
    let mut request = Request::new(note("late"));
    // tonic's client and server enforce `grpc-timeout` as well, and may be first to do so.
    let timeout = "0.2".parse().unwrap();
    request.metadata_mut().insert("x-request-timeout", timeout);
    let began = Instant::now();
    let late = ask(app.channel.clone(), request).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!(late.metadata().get("grpc-retry-pushback-ms").is_none());
    assert!(began.elapsed() >= Duration::from_millis(199));
    assert_eq!(app.handle.status().stats.deadline_passed, 1);
    app.finish.add_permits(1);
    assert!(running.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn grpc_timeout_is_a_deadline() {
    let layer = QueueLayer::new(QueueConfig::new(1));
    let finish = Arc::new(Semaphore::new(0));
    let queue = layer.layer(Notes {
        finish: Arc::clone(&finish),
        streams: mpsc::unbounded_channel().0,
    });
    let ask = |text, timeout: Option<&'static str>| {
        let mut grpc = tonic::client::Grpc::new(queue.clone());
        let mut request = Request::new(note(text));
        if let Some(timeout) = timeout {
            let timeout = timeout.parse().unwrap();
            request.metadata_mut().insert("grpc-timeout", timeout);
        }
        let path = PathAndQuery::from_static("/test.Notes/Say");
        let codec = ProstCodec::<Note, Note>::default();
        async move {
            grpc.ready().await.unwrap();
            grpc.unary(request, path, codec).await
        }
    };
    let running = tokio::spawn(ask("running", None));
    tokio::task::yield_now().await;
    for (timeout, millis) in [("200m", 200), ("0n", 0)] {
        let began = tokio::time::Instant::now();
        let late: Said = ask("late", Some(timeout)).await;
        assert_eq!(late.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(began.elapsed().as_millis(), millis);
    }
    finish.add_permits(1);
    assert!(running.await.unwrap().is_ok());
    assert_eq!(layer.handle().status().running, 0);
}

#[tokio::test]
async fn a_client_that_gives_up_stops_waiting() {
    let (app, running) = App::busy(QueueConfig::new(1)).await;
    let mut request = Request::new(note("gone"));
    request.set_timeout(Duration::from_millis(50));
    let gone = ask(app.channel.clone(), request).await.unwrap_err();
    assert!(matches!(
        gone.code(),
        Code::DeadlineExceeded | Code::Cancelled
    ));
    app.until(|depth, _| depth == 0).await;
    app.finish.add_permits(1);
    assert!(running.await.unwrap().is_ok());
    app.until(|_, running| running == 0).await;
}

#[tokio::test]
async fn a_stream_holds_its_slot_until_its_trailers() {
    let mut app = App::start(QueueConfig::new(1)).await;
    let (mut counted, items) = app.count().await;
    let next = tokio::spawn(say(&app, "now"));
    app.until(|depth, running| (depth, running) == (1, 1)).await;
    for number in ["one", "two"] {
        items.send(Ok(note(number))).unwrap();
        assert_eq!(counted.message().await.unwrap().unwrap().text, number);
    }
    assert!(!next.is_finished());
    assert_eq!(app.handle.status().running, 1);
    drop(items);
    assert_eq!(counted.message().await.unwrap(), None);
    assert!(counted.trailers().await.unwrap().is_some());
    assert_eq!(next.await.unwrap().unwrap().get_ref().text, "now");
    app.until(|depth, running| (depth, running) == (0, 0)).await;
}

#[tokio::test]
async fn a_failing_stream_frees_its_slot_with_its_status() {
    let mut app = App::start(QueueConfig::new(1)).await;
    let (mut counted, items) = app.count().await;
    items.send(Ok(note("one"))).unwrap();
    items.send(Err(Status::data_loss("lost count"))).unwrap();
    assert_eq!(counted.message().await.unwrap().unwrap().text, "one");
    let failed = counted.message().await.unwrap_err();
    assert_eq!(
        (failed.code(), failed.message()),
        (Code::DataLoss, "lost count")
    );
    app.until(|_, running| running == 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_its_slot() {
    let mut app = App::start(QueueConfig::new(1)).await;
    let (counted, _items) = app.count().await;
    assert_eq!(app.handle.status().running, 1);
    drop(counted);
    app.until(|_, running| running == 0).await;
    assert!(say(&app, "now").await.is_ok());
}

#[tokio::test]
async fn shutting_down_is_unavailable() {
    let (app, running) = App::busy(QueueConfig::new(1)).await;
    let waiting = tokio::spawn(say(&app, "waiting"));
    app.until(|depth, _| depth == 1).await;
    app.handle.close();
    for refused in [waiting.await.unwrap(), say(&app, "later").await] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert_eq!(refused.message(), "the service is shutting down");
    }
    app.finish.add_permits(1);
    assert!(running.await.unwrap().is_ok());
    app.handle.closed().await;
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn a_queue_may_stand_around_a_single_service() {
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(0));
    let app = App::serve(layer.handle(), |notes, incoming| {
        let server = Server::builder().add_service(layer.layer(notes));
        tokio::spawn(server.serve_with_incoming(incoming));
    })
    .await;
    let running = tokio::spawn(say(&app, "running"));
    app.until(|_, running| running == 1).await;
    let refused = say(&app, "refused").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    app.finish.add_permits(1);
    assert_eq!(running.await.unwrap().unwrap().get_ref().text, "running");
}
