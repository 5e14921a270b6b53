//! Tests of clients that hang up, also behind bytes sent after the request.

use std::net::Shutdown;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::process::{Gateway, Setup, TIMEOUT};
use crate::tls_support::{Socket, Transport, tcp};

const BODY: &str = r#"{"model":"m"}"#;

fn request(label: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-label: {label}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
}

/// Bytes that clients send after a request, before its response.
fn extras() -> Vec<(&'static str, String)> {
    vec![
        ("nothing", String::new()),
        ("an empty line", "\r\n".to_owned()),
        ("a byte of a request", "P".to_owned()),
        ("a request", request("pipelined")),
        (
            "many requests",
            (0..400).map(|_| request("pipelined")).collect(),
        ),
    ]
}

#[derive(Debug, Clone, Copy)]
enum Disconnect {
    Close,
    Reset,
    /// The client could still read a response, but the server cannot know that it will.
    CloseForWriting,
}

const DISCONNECTS: [Disconnect; 3] = [
    Disconnect::Close,
    Disconnect::Reset,
    Disconnect::CloseForWriting,
];

/// Disconnects a client; returns its socket if one side stays open.
async fn disconnect(mut client: Socket, how: Disconnect) -> Option<Socket> {
    match how {
        Disconnect::Close => None,
        Disconnect::Reset => {
            tcp(&client).set_zero_linger().unwrap();
            None
        }
        Disconnect::CloseForWriting => {
            client.shutdown().await.unwrap();
            Some(client)
        }
    }
}

async fn client(gateway: &Gateway, transport: &Transport) -> Socket {
    let client = transport.connect(gateway.addr()).await;
    tcp(&client).set_nodelay(true).unwrap();
    client
}

async fn gateway(slots: u32, transport: &Transport) -> (Gateway, Backend) {
    let backend = Backend::start().await;
    let server = format!("[server]\n{}", transport.line());
    let setup = Setup::new().top(&server).over(transport);
    let setup = setup.queue("max_wait_seconds = 3600");
    let setup = setup.backend("gpu-1", &backend, slots, &["m"]);
    (setup.start().await, backend)
}

#[tokio::test]
async fn disconnect_of_waiting_client_frees_its_place() {
    for transport in Transport::each() {
        let (gateway, backend) = gateway(1, &transport).await;
        let first = gateway.ask("m").label("first").send();
        let running = backend.next().await;
        for (extra, bytes) in extras() {
            for way in DISCONNECTS {
                println!("{extra}, {way:?}");
                let mut client = client(&gateway, &transport).await;
                let sent = request("gone") + &bytes;
                client.write_all(sent.as_bytes()).await.unwrap();
                gateway.depth(1).await;
                let _still_open = disconnect(client, way).await;
                gateway.depth(0).await;
            }
        }
        running.answer("fine");
        first.answer().await.assert_ok("fine");
        gateway.idle().await;
        assert_eq!(backend.counts().arrived, 1);
    }
}

#[tokio::test]
async fn disconnect_is_seen_behind_unread_bytes() {
    for transport in Transport::each() {
        let (gateway, backend) = gateway(1, &transport).await;
        let _first = gateway.ask("m").send();
        let _running = backend.next().await;
        for (extra, bytes) in extras() {
            println!("{extra}");
            let mut client = client(&gateway, &transport).await;
            client.write_all(request("gone").as_bytes()).await.unwrap();
            gateway.depth(1).await;
            client.write_all(bytes.as_bytes()).await.unwrap();
            // By now the gateway has read some of the bytes, or will read them together with the end.
            gateway.state().await;
            drop(client);
            gateway.depth(0).await;
        }
    }
}

#[tokio::test]
async fn client_disconnect_cancels_the_backend_request() {
    for transport in Transport::each() {
        let (gateway, backend) = gateway(1, &transport).await;
        for (extra, bytes) in extras() {
            for way in DISCONNECTS {
                println!("{extra}, {way:?}");
                let mut client = client(&gateway, &transport).await;
                let sent = request("gone") + &bytes;
                client.write_all(sent.as_bytes()).await.unwrap();
                let arrived = backend.next().await;
                let _still_open = disconnect(client, way).await;
                arrived.disconnected().await;
                gateway.idle().await;
            }
        }
        assert_eq!(backend.more().await, 0);
    }
}

#[tokio::test]
async fn client_disconnect_mid_response_cancels_the_backend_request() {
    for transport in Transport::each() {
        let (gateway, backend) = gateway(1, &transport).await;
        for (extra, bytes) in extras() {
            println!("{extra}");
            let mut client = client(&gateway, &transport).await;
            let sent = request("gone") + &bytes;
            client.write_all(sent.as_bytes()).await.unwrap();
            let streaming = backend.next().await.stream();
            streaming.send("half ");
            let mut head = [0; 12];
            client.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.1 200");
            drop(client);
            streaming.disconnected().await;
            gateway.idle().await;
        }
    }
}

#[tokio::test]
async fn full_room_is_empty_after_all_clients_disconnect() {
    let backend = Backend::start().await;
    let setup = Setup::new().queue("max_size = 100\nmax_wait_seconds = 3600");
    let setup = setup.backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = client(&gateway, &Transport::Plain).await;
        let sent = request("gone") + "\r\n";
        client.write_all(sent.as_bytes()).await.unwrap();
        clients.push(client);
    }
    gateway.depth(100).await;
    gateway
        .ask("m")
        .answer()
        .await
        .assert_error(503, "queue_full");
    drop(clients);
    gateway.depth(0).await;
    let second = gateway.ask("m").label("second").send();
    gateway.depth(1).await;
    running.answer("1");
    first.answer().await.assert_ok("1");
    let next = backend.next().await;
    assert_eq!(next.label(), "second");
    next.answer("2");
    second.answer().await.assert_ok("2");
}

/// Reads one chunked response and returns its body.
async fn read_answer(client: &mut Socket) -> String {
    let mut text = String::new();
    let whole = async {
        while !text.ends_with("\r\n0\r\n\r\n") {
            text.push(client.read_u8().await.unwrap().into());
        }
    };
    timeout(TIMEOUT, whole)
        .await
        .expect("the response is incomplete");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let (_, chunks) = text.split_once("\r\n\r\n").unwrap();
    chunks.lines().nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (gateway, backend) = gateway(1, &Transport::Plain).await;
    let labels: Vec<String> = (0..50).map(|n| format!("{n}")).collect();
    let mut client = client(&gateway, &Transport::Plain).await;
    let sent: String = labels.iter().map(|label| request(label)).collect();
    client.write_all(sent.as_bytes()).await.unwrap();
    for label in &labels {
        let arrived = backend.next().await;
        assert_eq!(arrived.label(), label);
        arrived.answer(label);
        assert_eq!(read_answer(&mut client).await, *label);
    }
    // The connection stays usable.
    client.write_all(request("last").as_bytes()).await.unwrap();
    backend.next().await.answer("last");
    assert_eq!(read_answer(&mut client).await, "last");
    gateway.idle().await;
}

#[tokio::test]
async fn http2_stream_reset_cancels_only_its_request() {
    let (gateway, backend) = gateway(1, &Transport::Plain).await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let socket = TcpStream::connect(gateway.addr()).await.unwrap();
    let socket = socket.into_std().unwrap();
    let same_socket = socket.try_clone().unwrap();
    let socket = TokioIo::new(TcpStream::from_std(socket).unwrap());
    let shaken = http2::handshake(TokioExecutor::new(), socket).await;
    let (mut requests, connection) = shaken.unwrap();
    tokio::spawn(connection);
    let mut send = |label: &str| {
        let request = Request::builder()
            .method(Method::POST)
            .uri("http://x/v1/chat/completions");
        let request = request
            .header("x-label", label)
            .body(Full::<Bytes>::from(BODY));
        tokio::spawn(requests.send_request(request.unwrap()))
    };
    let stays = send("stays");
    gateway.depth(1).await;
    let leaves = send("leaves");
    gateway.depth(2).await;
    leaves.abort();
    gateway.depth(1).await;
    running.answer("1");
    first.answer().await.assert_ok("1");
    let next = backend.next().await;
    assert_eq!(next.label(), "stays");
    next.answer("2");
    let answer = timeout(TIMEOUT, stays)
        .await
        .expect("no response")
        .unwrap()
        .unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "2");

    let _running = send("running");
    let arrived = backend.next().await;
    let _waiting = send("waiting");
    gateway.depth(1).await;
    same_socket.shutdown(Shutdown::Both).unwrap();
    gateway.depth(0).await;
    arrived.disconnected().await;
    gateway.idle().await;
}
