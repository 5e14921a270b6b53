//! Requests over HTTP/2: what they share, and what arrives.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Channel, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{pause, resume, timeout};
use tower::ServiceExt;
use tower_triage::endpoints::{Decision, Endpoint, NoResponse};
use tower_triage::upstream::{Forward, PeerAddr};

use super::http2_frames::Frames;
use super::{Failure, SOON, bind, in_service, post, send, text};

/// The decision for a request over HTTP/2.
pub(super) fn http2(url: String) -> Decision {
    in_service(Endpoint::new("gpu-1", url.parse().unwrap()).http2(true))
}

/// A server of HTTP/2 that answers a request when `go` has a permit for it.
struct Server {
    to: Decision,
    go: Arc<Semaphore>,
    connections: Arc<AtomicUsize>,
    /// The requests that have not been answered, and the most of them at one time.
    open: Arc<(AtomicUsize, AtomicUsize)>,
    serving: JoinSet<()>,
}

impl Server {
    async fn start(streams: u32) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let mut server = Self {
            to: http2(format!("http://{}", listener.local_addr().unwrap())),
            go: Arc::new(Semaphore::new(0)),
            connections: Arc::default(),
            open: Arc::default(),
            serving: JoinSet::new(),
        };
        let (go, open) = (Arc::clone(&server.go), Arc::clone(&server.open));
        let connections = Arc::clone(&server.connections);
        server.serving.spawn(async move {
            let mut serving = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, SeqCst);
                let (go, open) = (Arc::clone(&go), Arc::clone(&open));
                let answer = service_fn(move |request: Request<Incoming>| {
                    let (go, open) = (Arc::clone(&go), Arc::clone(&open));
                    async move {
                        open.1.fetch_max(open.0.fetch_add(1, SeqCst) + 1, SeqCst);
                        go.acquire().await.unwrap().forget();
                        open.0.fetch_sub(1, SeqCst);
                        let body = request.into_body().collect().await.unwrap();
                        Ok::<_, Infallible>(Response::new(Full::new(body.to_bytes())))
                    }
                });
                let mut builder = Builder::new(TokioExecutor::new());
                builder.max_concurrent_streams(streams);
                let connection = builder.serve_connection(TokioIo::new(socket), answer);
                serving.spawn(async move { connection.await.unwrap_or_default() });
            }
        });
        server
    }

    fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    async fn until_open(&self, count: usize) {
        let all = async {
            while self.open.0.load(SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, all).await.expect("that all requests come");
    }
}

/// Sends `count` requests at the same time, and reads their answers.
async fn ask(forward: &Forward<Full<Bytes>>, to: &Decision, count: usize) {
    let ask = async || text(send(forward, post(to, "mine")).await).await;
    let answers = join_all((0..count).map(|_| ask())).await;
    assert!(answers.iter().all(|answer| answer == "mine"), "{answers:?}");
}

#[tokio::test]
async fn requests_at_the_same_time_share_one_connection() {
    let server = Server::start(100).await;
    let forward = Forward::new();
    let all_are_there = async {
        server.until_open(50).await;
        server.go.add_permits(50);
    };
    tokio::join!(ask(&forward, &server.to, 50), all_are_there);
    server.go.add_permits(1);
    ask(&forward, &server.to, 1).await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn requests_above_the_limit_of_streams_go_over_further_connections() {
    let server = Server::start(2).await;
    let forward = Forward::new();
    let all_are_there = async {
        server.until_open(20).await;
        server.go.add_permits(20);
    };
    tokio::join!(ask(&forward, &server.to, 20), all_are_there);
    assert_eq!(server.connections(), 10);
    server.go.add_permits(2);
    ask(&forward, &server.to, 2).await;
    assert_eq!(server.connections(), 10);
}

#[tokio::test]
async fn only_one_stream_begins_before_the_limit_is_known() {
    let (upstream, _) = bind().await;
    let to = http2(format!("http://{}", upstream.addr()));
    let forward = Forward::new();
    let serve = async {
        let mut frames = Frames::preface(upstream.accept().await.0).await;
        let (stream, _) = frames.request().await;
        let second = timeout(Duration::from_millis(50), frames.next()).await;
        assert!(second.is_err(), "{second:?}");
        frames.limit_to_one().await;
        let mut all = vec![(frames, stream)];
        for _ in 0..4 {
            let mut frames = Frames::preface(upstream.accept().await.0).await;
            let (stream, _) = frames.request().await;
            frames.limit_to_one().await;
            all.push((frames, stream));
        }
        for (frames, stream) in &mut all {
            frames.answer(*stream, "mine").await;
        }
        all
    };
    tokio::join!(serve, ask(&forward, &to, 5));
}

#[tokio::test]
async fn a_connection_that_was_silent_for_a_late_request_gets_no_other() {
    let (upstream, _) = bind().await;
    let to = http2(format!("http://{}", upstream.addr()));
    let forward = Forward::new();
    let (mut mute, ()) = tokio::join!(
        async {
            let mut frames = Frames::begin(upstream.accept().await.0).await;
            let (stream, _) = frames.request().await;
            frames.answer(stream, "mine").await;
            frames
        },
        ask(&forward, &to, 1)
    );
    let late = tokio::spawn(forward.clone().oneshot(post(&to, "mine")));
    mute.request().await;
    pause();
    let late = late.await.unwrap().unwrap();
    resume();
    assert_eq!(late.status(), 504);
    tokio::join!(
        async {
            let mut frames = Frames::begin(upstream.accept().await.0).await;
            let (stream, _) = frames.request().await;
            frames.answer(stream, "mine").await;
        },
        ask(&forward, &to, 1)
    );
}

/// A server of HTTP/2 for one request, which it returns, with the trailers of its body.
async fn served(
    listener: TcpListener,
) -> (
    http::request::Parts,
    http_body_util::Collected<Bytes>,
    tokio::task::JoinHandle<()>,
) {
    let (socket, _) = listener.accept().await.unwrap();
    let (sender, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let answer = service_fn(move |request: Request<Incoming>| {
        let sender = sender.clone();
        async move {
            let (head, body) = request.into_parts();
            sender.send((head, body.collect().await.unwrap())).unwrap();
            let (mut sender, body) = Channel::<Bytes, Infallible>::new(2);
            tokio::spawn(async move {
                sender.send(Frame::data("ok".into())).await.unwrap();
                sender.send(Frame::trailers(trailers())).await.unwrap();
            });
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let connection =
        Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), answer);
    let serving = tokio::spawn(async move { connection.await.unwrap_or_default() });
    let (head, body) = requests.recv().await.expect("a request");
    (head, body, serving)
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("7"))])
}

#[tokio::test]
async fn authority_headers_and_trailers_arrive() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let to = http2(format!("http://localhost:{}/base/", addr.port()));
    let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(2);
    let mut request = Request::post("/v1/chat?x=1").extension(to);
    for (name, value) in [
        ("host", "gateway"),
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("te", "gzip, trailers"),
        ("trailer", "x-sum"),
        ("transfer-encoding", "chunked"),
        ("authorization", "Bearer x"),
    ] {
        request = request.header(name, value);
    }
    let request = request.extension(PeerAddr(([192, 0, 2, 7], 1).into()));
    let forward = Forward::new();
    let upload = async {
        sender.send(Frame::data("one".into())).await.unwrap();
        sender.send(Frame::trailers(trailers())).await.unwrap();
        drop(sender);
    };
    let answer = send(&forward, request.body(body).unwrap());
    let ((head, body, _serving), (), response) = tokio::join!(served(listener), upload, answer);

    assert_eq!(head.version, Version::HTTP_2);
    let uri = format!("http://localhost:{}/base/v1/chat?x=1", addr.port());
    assert_eq!(head.uri, *uri);
    let expected = [
        ("te", "trailers"),
        ("trailer", "x-sum"),
        ("authorization", "Bearer x"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-forwarded-host", "gateway"),
        ("x-forwarded-proto", "http"),
        ("forwarded", "for=192.0.2.7;host=\"gateway\";proto=http"),
    ];
    let expected = expected.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    assert_eq!(head.headers, HeaderMap::from_iter(expected));
    assert_eq!(body.trailers(), Some(&trailers()));
    assert_eq!(body.to_bytes(), "one");
    let answer = timeout(SOON, response.into_body().collect()).await;
    let answer = answer.expect("an answer").unwrap();
    assert_eq!(answer.trailers(), Some(&trailers()));
    assert_eq!(answer.to_bytes(), "ok");
}

#[tokio::test]
async fn an_endpoint_of_http_1_is_a_failure() {
    let (upstream, _) = bind().await;
    let to = http2(format!("http://{}", upstream.addr()));
    let forward = Forward::new();
    let serve = async {
        let mut connections = Vec::new();
        loop {
            let mut connection = upstream.accept().await;
            connection.send("HTTP/1.1 400 Bad Request\r\n\r\n").await;
            connections.push(connection);
        }
    };
    let response = tokio::select! {
        response = send(&forward, post(&to, "{}")) => response,
        _ = serve => unreachable!("it serves for ever"),
    };
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
}

#[tokio::test]
async fn all_requests_that_wait_for_a_connection_learn_of_its_failure() {
    let (upstream, _) = bind().await;
    let to = http2(format!("http://{}", upstream.addr()));
    drop(upstream);
    let forward = Forward::new();
    let failed = join_all((0..10).map(|_| send(&forward, post(&to, "{}")))).await;
    for response in failed {
        let failure = Failure::read(response).await;
        failure.is(502, "upstream_unreachable", NoResponse::Unreachable);
    }
}

#[tokio::test]
async fn a_request_that_leaves_while_it_connects_leaves_the_others() {
    let server = Server::start(100).await;
    server.go.add_permits(1);
    let forward = Forward::new();
    let mut first = Box::pin(send(&forward, post(&server.to, "mine")));
    assert!(futures_util::poll!(&mut first).is_pending());
    let second = tokio::spawn({
        let (forward, to) = (forward.clone(), server.to.clone());
        async move { ask(&forward, &to, 1).await }
    });
    tokio::task::yield_now().await;
    drop(first);
    timeout(SOON, second).await.expect("an answer").unwrap();
    assert_eq!(server.connections(), 1);
}
