//! Tests of clients that send or read too slowly, or keep connections without a request.

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use std::convert::Infallible;
use std::time::Duration;

use crate::backend::Backend;
use crate::process::{Gateway, Setup, TIMEOUT};
use crate::tls_support::{Socket, Transport};

/// A request over HTTP/1.
const CHAT: &str =
    "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Far above the limit that a test sets, and the default of no key.
const LONG: &str = "3600";

/// A gateway with one slot, `[admin]`, and all timeouts of `[server]` so long that only `short` matters.
async fn gateway(short: &str, transport: &Transport) -> (Gateway, Backend) {
    let backend = Backend::start().await;
    let mut server = "[admin]\nlisten = \"127.0.0.1:0\"\n[server]\n".to_owned();
    for name in ["header", "body", "idle", "write"] {
        let value = if name == short { "2" } else { LONG };
        server += &format!("{name}_timeout_seconds = {value}\n");
    }
    server += &transport.line();
    let setup = Setup::new().top(&server).over(transport);
    let setup = setup.backend("gpu-1", &backend, 1, &["m"]);
    (setup.start().await, backend)
}

fn admin_addr(gateway: &Gateway) -> &str {
    gateway.admin_url().strip_prefix("http://").unwrap()
}

/// The addresses of a gateway, and how its clients speak with each.
fn addresses<'a>(gateway: &'a Gateway, main: &'a Transport) -> [(&'a Transport, &'a str); 2] {
    static PLAIN: Transport = Transport::Plain;
    [(main, gateway.addr()), (&PLAIN, admin_addr(gateway))]
}

/// Reads what the gateway sends until it closes the connection.
async fn until_closed(client: &mut Socket) -> String {
    let mut read = Vec::new();
    let closed = timeout(TIMEOUT, client.read_to_end(&mut read)).await;
    _ = closed.expect("the connection is not closed"); // a reset is fine, too
    String::from_utf8_lossy(&read).into_owned()
}

async fn http2(socket: Socket) -> (SendRequest<Body>, JoinHandle<hyper::Result<()>>) {
    let (client, connection) = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(16 << 10)
        .initial_connection_window_size(1 << 20)
        .handshake(TokioIo::new(socket))
        .await
        .unwrap();
    (client, tokio::spawn(connection))
}

fn chat(body: Body) -> Request<Body> {
    let request = Request::builder()
        .method(Method::POST)
        .uri("http://localhost/v1/chat/completions");
    request.body(body).unwrap()
}

fn whole() -> Body {
    Full::from(r#"{"model":"m"}"#)
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that begins and never goes on.
fn stalled() -> Body {
    let first = Ok(Frame::data(Bytes::from("{\"model\"")));
    let frames = stream::iter([first]).chain(stream::pending());
    StreamBody::new(frames).boxed_unsync()
}

async fn text(response: Response<Incoming>) -> String {
    let body = timeout(TIMEOUT, response.into_body().collect()).await;
    let body = body.expect("the response does not end").unwrap().to_bytes();
    String::from_utf8(body.into()).unwrap()
}

#[tokio::test]
async fn half_a_head_is_closed_at_both_addresses() {
    for transport in Transport::each() {
        let (gateway, _backend) = gateway("header", &transport).await;
        let halves = [
            "",
            "G",
            "P",
            "GET /healthz HTTP/1.1\r\nhost: x\r\n",
            "PRI * HTTP/2.0\r\n",
        ];
        let addresses = addresses(&gateway, &transport);
        let clients = addresses.map(|(transport, addr)| {
            join_all(halves.map(|half| async move {
                let mut client = transport.connect(addr).await;
                client.write_all(half.as_bytes()).await.unwrap();
                let answer = until_closed(&mut client).await;
                assert!(!answer.starts_with("HTTP/1.1 2"), "{half:?}: {answer}");
            }))
        });
        join_all(clients).await;
    }
}

#[tokio::test]
async fn stalled_upload_gets_408_over_http1() {
    for transport in Transport::each() {
        let (gateway, backend) = gateway("body", &transport).await;
        let mut client = transport.connect(gateway.addr()).await;
        let half = "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
        client.write_all(half.as_bytes()).await.unwrap();
        let answer = until_closed(&mut client).await;
        assert!(answer.contains("{\"error\":{"), "{answer}");
        assert!(answer.contains("\"type\":\"error\""), "{answer}");
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(
            answer.contains("\"code\":\"request_body_timeout\""),
            "{answer}"
        );
        gateway.idle().await;
        assert_eq!(backend.counts().arrived, 0);
    }
}

#[tokio::test]
async fn stalled_upload_gets_408_over_http2_and_ends_no_other_stream() {
    for transport in Transport::each() {
        let (gateway, backend) = gateway("body", &transport).await;
        let (mut client, _connection) = http2(transport.connect(gateway.addr()).await).await;
        let other = tokio::spawn(client.send_request(chat(whole())));
        let running = backend.next().await;
        let answer = timeout(TIMEOUT, client.send_request(chat(stalled()))).await;
        let answer = answer.expect("no response").unwrap();
        assert_eq!(answer.status(), 408);
        assert!(text(answer).await.contains("request_body_timeout"));
        running.answer("fine");
        assert_eq!(text(other.await.unwrap().unwrap()).await, "fine");
    }
}

#[tokio::test]
async fn stalled_body_of_an_action_gets_408_at_the_admin_address() {
    let (gateway, _backend) = gateway("body", &Transport::Plain).await;
    let mut client = Transport::Plain.connect(admin_addr(&gateway)).await;
    let half = "POST /models/load HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{";
    client.write_all(half.as_bytes()).await.unwrap();
    let answer = until_closed(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test]
async fn kept_connection_without_a_request_is_closed_politely() {
    for transport in Transport::each() {
        let (gateway, _backend) = gateway("idle", &transport).await;
        for (transport, addr) in addresses(&gateway, &transport) {
            let mut client = transport.connect(addr).await;
            let request = "GET /running HTTP/1.1\r\nhost: localhost\r\n\r\n";
            client.write_all(request.as_bytes()).await.unwrap();
            let answer = until_closed(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

            let (mut client, connection) = http2(transport.connect(addr).await).await;
            let request = Request::builder().uri("http://localhost/running");
            let answer = client.send_request(request.body(whole()).unwrap()).await;
            assert_eq!(answer.unwrap().status(), 200);
            let ended = timeout(TIMEOUT, connection).await;
            // Without a GOAWAY the client would report an error.
            ended.expect("it is not closed").unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn client_that_does_not_read_is_cut_off_over_http1() {
    for transport in Transport::each() {
        let (gateway, backend) = gateway("write", &transport).await;
        let mut client = transport.connect(gateway.addr()).await;
        client.write_all(CHAT.as_bytes()).await.unwrap();
        let streaming = backend.next().await.stream();
        let chunk = "x".repeat(1 << 20);
        (0..64).for_each(|_| streaming.send(&chunk));
        streaming.disconnected().await;
        gateway.idle().await;
        gateway.logs(&["response cut off", "does not read"]).await;
        drop(client);
    }
}

#[tokio::test]
async fn client_that_reads_slowly_is_not_cut_off() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top("[server]\nwrite_timeout_seconds = 3")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    client.write_all(CHAT.as_bytes()).await.unwrap();
    let streaming = backend.next().await.stream();
    let chunk = "x".repeat(1 << 20);
    (0..64).for_each(|_| streaming.send(&chunk));
    let end = Instant::now() + Duration::from_secs(8);
    let mut bytes = vec![0; 48 << 10];
    while Instant::now() < end {
        client.read_exact(&mut bytes).await.expect("it is cut off");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(gateway.logged("cut off"), 0);
}

#[tokio::test]
async fn stream_that_is_not_read_is_reset_and_no_other_one() {
    for transport in Transport::each() {
        let (gateway, backend) = gateway("write", &transport).await;
        let (mut client, _connection) = http2(transport.connect(gateway.addr()).await).await;
        let unread = client.send_request(chat(whole()));
        let unread = tokio::spawn(unread);
        let streaming = backend.next().await.stream();
        streaming.send(&"x".repeat(1 << 20));
        let unread = timeout(TIMEOUT, unread).await.unwrap().unwrap().unwrap();
        assert_eq!(unread.status(), 200);
        let other = tokio::spawn(client.send_request(chat(whole())));
        streaming.disconnected().await;
        // Its slot is free, and the connection serves the next request.
        backend.next().await.answer("fine");
        assert_eq!(text(other.await.unwrap().unwrap()).await, "fine");
        let cut_off = timeout(TIMEOUT, unread.into_body().collect())
            .await
            .unwrap();
        assert!(cut_off.is_err());
    }
}

#[tokio::test]
async fn silence_of_a_backend_ends_nothing() {
    for transport in &Transport::each() {
        let short = ["header", "body", "idle", "write"];
        join_all(short.map(|short| silence_ends_nothing(short, transport))).await;
    }
}

async fn silence_ends_nothing(short: &str, transport: &Transport) {
    let (gateway, backend) = gateway(short, transport).await;
    let (mut client, _connection) = http2(transport.connect(gateway.addr()).await).await;
    let over_http2 = tokio::spawn(client.send_request(chat(whole())));
    let streaming = backend.next().await.stream();
    let over_http1 = gateway.ask("m").send();
    gateway.depth(1).await;
    streaming.send("begun, ");
    let answer = timeout(TIMEOUT, over_http2)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    sleep(Duration::from_secs(5)).await; // more than twice the limit
    streaming.send("ended");
    streaming.end();
    assert_eq!(text(answer).await, "begun, ended", "{short}");
    backend.next().await.answer("fine");
    over_http1.answer().await.assert_ok("fine");
}

#[tokio::test]
async fn large_body_that_nobody_reads_does_not_keep_its_refusal_from_the_client() {
    const LENGTH: usize = 4 << 20;
    for transport in Transport::each() {
        let tenant = "[[tenants]]\nname = \"a\"\nkeys = [\"k\"]\n";
        let backend = Backend::start().await;
        let setup = Setup::new().top(&format!("[server]\n{}", transport.line()));
        let setup = setup.over(&transport).sections(tenant);
        let gateway = setup.backend("gpu-1", &backend, 1, &["m"]).start().await;
        for (path, key, status, code) in [
            ("/v1/chat/completions", "x", 401, "invalid_api_key"),
            ("/nowhere", "k", 404, "not_found"),
        ] {
            // The client reads no answer before it has sent all, as Python's do.
            let mut client = transport.connect(gateway.addr()).await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-length: {LENGTH}\r\n\r\n"
            );
            client.write_all(head.as_bytes()).await.unwrap();
            for _ in 0..LENGTH / 4096 {
                client.write_all(&[b' '; 4096]).await.unwrap();
            }
            let next = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            client.write_all(next.as_bytes()).await.unwrap();
            let answers = until_closed(&mut client).await;
            assert!(
                answers.starts_with(&format!("HTTP/1.1 {status}")),
                "{answers}"
            );
            assert!(answers.contains(code), "{answers}");
            assert!(answers.contains("HTTP/1.1 200"), "{answers}");

            let (mut client, _connection) = http2(transport.connect(gateway.addr()).await).await;
            let piece = || Ok(Frame::data(Bytes::from_static(&[b' '; 4096])));
            let (say, sent) = oneshot::channel();
            let last = stream::once(async move {
                _ = say.send(());
                piece()
            });
            let pieces = stream::iter((1..LENGTH / 4096).map(move |_| piece())).chain(last);
            let mut request = chat(StreamBody::new(pieces).boxed_unsync());
            *request.uri_mut() = format!("http://localhost{path}").parse().unwrap();
            let key = key.parse().unwrap();
            request.headers_mut().insert("x-api-key", key);
            let answer = timeout(TIMEOUT, client.send_request(request)).await;
            let answer = answer.expect("no response").unwrap();
            assert_eq!(answer.status(), status);
            assert!(text(answer).await.contains(code));
            let sent = timeout(TIMEOUT, sent).await;
            sent.expect("the body is not read")
                .expect("the stream is reset");
        }
    }
}
