//! An HTTP server on a real socket, with handlers that finish when the test says so, and its clients.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinHandle};

/// Serves `router` on a port of its own.
pub(crate) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    addr
}

/// Waits until something that is bound to happen has happened.
pub(crate) async fn until(what: &str, happened: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if happened() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it never happened that {what}");
}

/// A handler that records the requests it was called for, and finishes them when the test says so.
#[derive(Clone)]
pub(crate) struct Jobs(Arc<State>);

struct State {
    started: Mutex<Vec<String>>,
    running: AtomicUsize,
    peak: AtomicUsize,
    finish: Semaphore,
}

impl Jobs {
    pub(crate) fn new() -> Self {
        Self(Arc::new(State {
            started: Mutex::default(),
            running: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            finish: Semaphore::new(0),
        }))
    }

    pub(crate) fn finish(&self, count: usize) {
        self.0.finish.add_permits(count);
    }

    /// The names of the requests that were started, in order.
    pub(crate) fn started(&self) -> Vec<String> {
        self.0.started.lock().unwrap().clone()
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.peak.load(SeqCst)
    }

    /// Runs a request until the test says that it may finish. Panics if the request says so.
    pub(crate) async fn run(self, headers: HeaderMap) -> &'static str {
        let name = headers.get("x-name").map_or("", |v| v.to_str().unwrap());
        self.0.started.lock().unwrap().push(name.to_owned());
        let running = self.0.running.fetch_add(1, SeqCst) + 1;
        self.0.peak.fetch_max(running, SeqCst);
        let _leaving = Leaving(&self.0.running);
        tokio::task::yield_now().await;
        assert!(!headers.contains_key("x-panic"), "the handler panics");
        self.0.finish.acquire().await.unwrap().forget();
        "served"
    }
}

struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A response, and its connection. Dropping it hangs up.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Incoming,
    _line: HangUp,
}

struct HangUp(AbortHandle);

impl Drop for HangUp {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Reply {
    pub(crate) async fn text(self) -> String {
        let bytes = self.body.collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// The next part of a streamed body.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.body.frame().await?.unwrap().into_data().ok()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// The code in an error's body, and what goes with every rejection.
    pub(crate) async fn code(self) -> String {
        assert_eq!(self.header("content-type"), "application/json");
        if self.status == 503 || self.status == 429 {
            let seconds: u64 = self.header("retry-after").parse().unwrap();
            assert!(seconds >= 1);
        }
        let json: serde_json::Value = serde_json::from_str(&self.text().await).unwrap();
        json["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// A client that is about to send.
pub(crate) struct Client {
    addr: SocketAddr,
    request: Request<Empty<Bytes>>,
}

pub(crate) fn get(addr: SocketAddr, path: &str) -> Client {
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = path.parse().unwrap();
    let host = HeaderValue::from_str(&addr.to_string()).unwrap();
    request.headers_mut().insert("host", host);
    Client { addr, request }
}

impl Client {
    pub(crate) fn header(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
        let name = HeaderName::from_static(name);
        self.request.headers_mut().insert(name, value);
        self
    }

    pub(crate) fn named(self, name: &str) -> Self {
        self.header("x-name", name)
    }

    /// Sends on a connection of its own. An error if the server hangs up.
    pub(crate) async fn try_send(self) -> Result<Reply, hyper::Error> {
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let line = HangUp(tokio::spawn(connection).abort_handle());
        let (head, body) = sender.send_request(self.request).await?.into_parts();
        Ok(Reply {
            status: head.status,
            headers: head.headers,
            body,
            _line: line,
        })
    }

    pub(crate) async fn send(self) -> Reply {
        self.try_send().await.unwrap()
    }

    /// Sends from a task; aborting it hangs up.
    pub(crate) fn spawn(self) -> JoinHandle<Reply> {
        tokio::spawn(self.send())
    }
}

/// A body that ends when its sender is dropped.
pub(crate) fn stream(parts: tokio::sync::mpsc::UnboundedReceiver<&'static str>) -> Body {
    let parts = futures_util::stream::unfold(parts, |mut parts| async move {
        let part = parts.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(part), parts))
    });
    Body::from_stream(parts)
}
