//! A client that hangs up leaves nothing behind, whatever it had sent after its request.

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
use crate::process::{Gateway, PATIENCE, Setup};

const BODY: &str = r#"{"model":"m"}"#;

fn request(label: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-label: {label}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
}

/// What some clients send after a request before it is answered.
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
enum HangUp {
    Close,
    Reset,
    /// It could still read an answer. A server cannot know that it wants to.
    CloseForWriting,
}

const WAYS: [HangUp; 3] = [HangUp::Close, HangUp::Reset, HangUp::CloseForWriting];

/// Returns what of the client is still open.
async fn hang_up(mut client: TcpStream, how: HangUp) -> Option<TcpStream> {
    match how {
        HangUp::Close => None,
        HangUp::Reset => {
            client.set_zero_linger().unwrap();
            None
        }
        HangUp::CloseForWriting => {
            client.shutdown().await.unwrap();
            Some(client)
        }
    }
}

async fn client(gateway: &Gateway) -> TcpStream {
    let client = TcpStream::connect(gateway.addr()).await.unwrap();
    client.set_nodelay(true).unwrap();
    client
}

async fn gateway(slots: u32) -> (Gateway, Backend) {
    let backend = Backend::start().await;
    let setup = Setup::new().queue("max_wait_seconds = 3600");
    let setup = setup.backend("gpu-1", &backend, slots, &["m"]);
    (setup.start().await, backend)
}

#[tokio::test]
async fn a_waiting_client_that_hangs_up_frees_its_place() {
    let (gateway, backend) = gateway(1).await;
    let first = gateway.ask("m").label("first").send();
    let running = backend.next().await;
    for (extra, bytes) in extras() {
        for way in WAYS {
            println!("{extra}, {way:?}");
            let mut client = client(&gateway).await;
            let sent = request("gone") + &bytes;
            client.write_all(sent.as_bytes()).await.unwrap();
            gateway.depth(1).await;
            let _still_open = hang_up(client, way).await;
            gateway.depth(0).await;
        }
    }
    running.answer("fine");
    first.answer().await.must_say("fine");
    gateway.idle().await;
    assert_eq!(backend.counts().arrived, 1);
}

#[tokio::test]
async fn bytes_that_come_while_a_request_waits_hide_no_hang_up() {
    let (gateway, backend) = gateway(1).await;
    let _first = gateway.ask("m").send();
    let _running = backend.next().await;
    for (extra, bytes) in extras() {
        println!("{extra}");
        let mut client = client(&gateway).await;
        client.write_all(request("gone").as_bytes()).await.unwrap();
        gateway.depth(1).await;
        client.write_all(bytes.as_bytes()).await.unwrap();
        // The gateway has seen some of them now, or will see them together with the end.
        gateway.state().await;
        drop(client);
        gateway.depth(0).await;
    }
}

#[tokio::test]
async fn the_backend_of_a_client_that_hangs_up_is_told() {
    let (gateway, backend) = gateway(1).await;
    for (extra, bytes) in extras() {
        for way in WAYS {
            println!("{extra}, {way:?}");
            let mut client = client(&gateway).await;
            let sent = request("gone") + &bytes;
            client.write_all(sent.as_bytes()).await.unwrap();
            let arrived = backend.next().await;
            let _still_open = hang_up(client, way).await;
            arrived.hung_up().await;
            gateway.idle().await;
        }
    }
    assert_eq!(backend.more().await, 0);
}

#[tokio::test]
async fn the_backend_of_a_client_that_hangs_up_within_an_answer_is_told() {
    let (gateway, backend) = gateway(1).await;
    for (extra, bytes) in extras() {
        println!("{extra}");
        let mut client = client(&gateway).await;
        let sent = request("gone") + &bytes;
        client.write_all(sent.as_bytes()).await.unwrap();
        let streaming = backend.next().await.stream();
        streaming.send("half ");
        let mut head = [0; 12];
        client.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        drop(client);
        streaming.hung_up().await;
        gateway.idle().await;
    }
}

#[tokio::test]
async fn a_hundred_clients_that_hung_up_leave_their_places() {
    let backend = Backend::start().await;
    let setup = Setup::new().queue("max_size = 100\nmax_wait_seconds = 3600");
    let setup = setup.backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = client(&gateway).await;
        let sent = request("gone") + "\r\n";
        client.write_all(sent.as_bytes()).await.unwrap();
        clients.push(client);
    }
    gateway.depth(100).await;
    gateway.ask("m").answer().await.must_be(503, "queue_full");
    drop(clients);
    gateway.depth(0).await;
    let second = gateway.ask("m").label("second").send();
    gateway.depth(1).await;
    running.answer("1");
    first.answer().await.must_say("1");
    let next = backend.next().await;
    assert_eq!(next.label(), "second");
    next.answer("2");
    second.answer().await.must_say("2");
}

/// Reads one answer, in chunks: its body.
async fn read_answer(client: &mut TcpStream) -> String {
    let mut text = String::new();
    let whole = async {
        while !text.ends_with("\r\n0\r\n\r\n") {
            text.push(client.read_u8().await.unwrap().into());
        }
    };
    timeout(PATIENCE, whole).await.expect("no whole answer");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let (_, chunks) = text.split_once("\r\n\r\n").unwrap();
    chunks.lines().nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_client_that_pipelines_and_stays_gets_every_answer_in_order() {
    let (gateway, backend) = gateway(1).await;
    let labels: Vec<String> = (0..50).map(|n| format!("{n}")).collect();
    let mut client = client(&gateway).await;
    let sent: String = labels.iter().map(|label| request(label)).collect();
    client.write_all(sent.as_bytes()).await.unwrap();
    for label in &labels {
        let arrived = backend.next().await;
        assert_eq!(arrived.label(), label);
        arrived.answer(label);
        assert_eq!(read_answer(&mut client).await, *label);
    }
    // The connection is as good as before.
    client.write_all(request("last").as_bytes()).await.unwrap();
    backend.next().await.answer("last");
    assert_eq!(read_answer(&mut client).await, "last");
    gateway.idle().await;
}

#[tokio::test]
async fn http2_streams_come_and_go_on_a_connection_that_stays() {
    let (gateway, backend) = gateway(1).await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let socket = client(&gateway).await.into_std().unwrap();
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
    first.answer().await.must_say("1");
    let next = backend.next().await;
    assert_eq!(next.label(), "stays");
    next.answer("2");
    let answer = timeout(PATIENCE, stays)
        .await
        .expect("no answer")
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
    arrived.hung_up().await;
    gateway.idle().await;
}
