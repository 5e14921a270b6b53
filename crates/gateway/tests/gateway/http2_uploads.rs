//! Tests of many uploads that wait over one connection of HTTP/2.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::process::{Gateway, Setup, TIMEOUT};

type Body = UnsyncBoxBody<Bytes, std::convert::Infallible>;

/// A client with one connection.
#[derive(Clone)]
struct Client(SendRequest<Body>);

/// The response to a request that was sent.
type Pending = JoinHandle<hyper::Result<Response<Incoming>>>;

impl Client {
    async fn connect(gateway: &Gateway) -> Self {
        let socket = TcpStream::connect(gateway.addr()).await.unwrap();
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
        let (client, connection) = shaken.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    fn send(&self, path: &str, content_type: &str, body: Body) -> Pending {
        let request = Request::post(format!("http://localhost{path}"))
            .header("content-type", content_type)
            .body(body)
            .unwrap();
        tokio::spawn(self.0.clone().send_request(request))
    }

    /// Sends a form with a file of 400 KiB.
    fn form(&self, model: &str) -> Pending {
        let part =
            |name: &str| format!("--XX\r\nContent-Disposition: form-data; name={name}\r\n\r\n");
        let file = "x".repeat(400 << 10);
        let (model, file) = (
            format!("{}{model}\r\n", part("\"model\"")),
            format!("{}{file}\r\n", part("\"file\"; filename=\"a\"")),
        );
        let body = Full::from(format!("{model}{file}--XX--\r\n"));
        let content_type = "multipart/form-data; boundary=XX";
        self.send(
            "/v1/audio/transcriptions",
            content_type,
            body.boxed_unsync(),
        )
    }

    fn chat(&self, model: &str) -> Pending {
        let body = Full::from(format!("{{\"model\": \"{model}\"}}"));
        self.send(
            "/v1/chat/completions",
            "application/json",
            body.boxed_unsync(),
        )
    }

    /// Sends a body that does not end after its first byte.
    fn endless(&self, path: &str) -> Pending {
        let first = Frame::data(Bytes::from_static(b" "));
        let body = stream::iter([Ok(first)]).chain(stream::pending());
        self.send(
            path,
            "application/json",
            StreamBody::new(body).boxed_unsync(),
        )
    }
}

async fn answered(pending: Pending) -> (StatusCode, String) {
    let answer = async {
        let response = pending.await.unwrap().unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    timeout(TIMEOUT, answer).await.expect("no answer comes")
}

#[tokio::test]
async fn uploads_that_wait_over_one_connection_stop_no_other_request() {
    let (busy, free) = (Backend::start().await, Backend::replying("free").await);
    let setup = Setup::new()
        .queue("max_wait_seconds = \"none\"\ntarget_wait = \"none\"")
        .backend("gpu-1", &busy, 1, &["m"])
        .backend("gpu-2", &free, 1, &["other"]);
    let gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let first = busy.next().await;

    let client = Client::connect(&gateway).await;
    let forms: Vec<_> = (0..16).map(|_| client.form("m")).collect();
    gateway.depth(16).await;
    let (status, text) = answered(client.chat("other")).await;
    assert_eq!((status, &*text), (StatusCode::OK, "free"));

    first.answer("done");
    running.answer().await.assert_ok("done");
    for _ in 0..16 {
        let form = busy.next().await;
        assert!(form.body.len() > 400 << 10, "{}", form.body.len());
        form.answer("heard");
    }
    for form in forms {
        assert_eq!(answered(form).await, (StatusCode::OK, "heard".to_owned()));
    }
}

/// Each of the bodies that wait may be here up to the window of its stream, so that is what it counts.
#[tokio::test]
async fn bodies_that_wait_unread_over_http2_count_in_the_memory() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top("body_limit_bytes = 300000")
        .queue("max_wait_seconds = \"none\"")
        .sections("[server]\nbody_memory_bytes = 300000\n")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let first = backend.next().await;
    let client = Client::connect(&gateway).await;
    let waiting: Vec<_> = (0..2).map(|_| client.endless("/v1/x?model=m")).collect();
    gateway.depth(2).await;
    let (status, text) = answered(client.endless("/v1/x?model=m")).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("\"body_memory_full\""), "{text}");

    waiting.iter().for_each(JoinHandle::abort);
    gateway.depth(0).await;
    let upload = client.endless("/v1/x?model=m");
    gateway.depth(1).await;
    upload.abort();
    first.answer("done");
    running.answer().await.assert_ok("done");
}

/// A client that sends nothing of its bodies must not take the memory that others need.
#[tokio::test]
async fn bodies_that_are_awaited_over_http2_use_no_memory() {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new()
        .top("body_limit_bytes = 300000")
        .sections("[server]\nbody_memory_bytes = 300000\n")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let client = Client::connect(&gateway).await;
    let slow: Vec<_> = (0..50)
        .map(|_| client.endless("/v1/chat/completions"))
        .collect();
    // Requests of one connection are served in the order in which they arrive.
    let (status, text) = answered(client.chat("m")).await;
    assert_eq!((status, &*text), (StatusCode::OK, "fine"));
    assert!(slow.iter().all(|slow| !slow.is_finished()));
}
