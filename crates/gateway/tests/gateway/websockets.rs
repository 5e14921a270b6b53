//! Tests of websockets, whose bytes pass in both directions.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::process::{Gateway, Setup, TIMEOUT};

/// A backend that switches its protocol.
struct Switching(TcpListener);

impl Switching {
    async fn start() -> Self {
        Self(TcpListener::bind(("127.0.0.1", 0)).await.unwrap())
    }

    async fn gateway(&self) -> Gateway {
        self.gateway_with("").await
    }

    /// A gateway with these further lines of `[queue]`.
    async fn gateway_with(&self, queue: &str) -> Gateway {
        self.gateway_of(Setup::new().queue(queue)).await
    }

    async fn gateway_of(&self, setup: Setup) -> Gateway {
        let url = format!("http://{}", self.0.local_addr().unwrap());
        let setup = setup.queue("enabled = false");
        setup.backend_at("gpu-1", &url, 1, &["m"]).start().await
    }

    /// Takes a request, answers it with `answer`, and returns its head.
    async fn switch(&self, answer: &str) -> (TcpStream, String) {
        let (mut socket, _) = self.0.accept().await.unwrap();
        let head = read_until(&mut socket, "\r\n\r\n").await;
        socket.write_all(answer.as_bytes()).await.unwrap();
        (socket, head.to_lowercase())
    }
}

const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                        Sec-WebSocket-Accept: abc\r\n\r\n";

async fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let read = async {
        while !text.ends_with(end.as_bytes()) {
            assert_ne!(socket.read_buf(&mut text).await.unwrap(), 0, "closed");
        }
    };
    timeout(TIMEOUT, read)
        .await
        .unwrap_or_else(|_| panic!("{end:?} does not come"));
    String::from_utf8(text).unwrap()
}

async fn ask(gateway: &Gateway, path: &str, upgrade: &str) -> TcpStream {
    let mut client = TcpStream::connect(gateway.addr()).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: {upgrade}\r\n\
         sec-websocket-key: k\r\nsec-websocket-version: 13\r\n\r\n"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

#[tokio::test]
async fn bytes_pass_both_ways_and_the_slot_is_held() {
    let backend = Switching::start().await;
    let gateway = backend.gateway().await;
    for (path, target) in [
        ("/v1/realtime?model=m", "get /v1/realtime?model=m "),
        ("/upstream/m/ws", "get /ws "),
    ] {
        let mut client = ask(&gateway, path, "websocket").await;
        let (mut socket, head) = backend.switch(SWITCHED).await;
        assert!(head.starts_with(target), "{head}");
        for header in [
            "connection: upgrade\r\n",
            "upgrade: websocket\r\n",
            "sec-websocket-key: k\r\n",
        ] {
            assert!(head.contains(header), "{head}");
        }
        let answer = read_until(&mut client, "\r\n\r\n").await.to_lowercase();
        assert!(answer.starts_with("http/1.1 101"), "{answer}");
        for header in [
            "connection: upgrade",
            "upgrade: websocket",
            "sec-websocket-accept: abc",
        ] {
            assert!(answer.contains(header), "{answer}");
        }
        client.write_all(b"ping").await.unwrap();
        assert_eq!(read_until(&mut socket, "ping").await, "ping");
        socket.write_all(b"pong").await.unwrap();
        assert_eq!(read_until(&mut client, "pong").await, "pong");

        assert_eq!(gateway.state().await.in_flight(), [1]);
        gateway
            .ask("m")
            .answer()
            .await
            .assert_error(503, "queue_disabled");
        drop(client);
        assert_eq!(
            timeout(TIMEOUT, socket.read(&mut [0]))
                .await
                .unwrap()
                .unwrap(),
            0
        );
        drop(socket);
        gateway.idle().await;
    }
    gateway.logs(&["status=101", "result=\"complete\""]).await;
}

#[tokio::test]
async fn the_limit_on_silent_bodies_leaves_a_websocket_alone() {
    let backend = Switching::start().await;
    let gateway = backend.gateway_with("idle_timeout_seconds = 1").await;
    let mut client = ask(&gateway, "/v1/realtime?model=m", "websocket").await;
    let (mut socket, _) = backend.switch(SWITCHED).await;
    read_until(&mut client, "\r\n\r\n").await;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1_500) {
        client.write_all(b"ping").await.unwrap();
        assert_eq!(read_until(&mut socket, "ping").await, "ping");
    }
    assert_eq!(gateway.state().await.in_flight(), [1]);
}

#[tokio::test]
async fn a_websocket_ends_if_neither_side_sends() {
    let backend = Switching::start().await;
    let setup = Setup::new().sections("[upstream]\nidle_timeout_seconds = 3\n");
    let gateway = backend.gateway_of(setup).await;
    let mut client = ask(&gateway, "/v1/realtime?model=m", "websocket").await;
    let (mut socket, _) = backend.switch(SWITCHED).await;
    read_until(&mut client, "\r\n\r\n").await;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        socket.write_all(b"ping").await.unwrap();
        assert_eq!(read_until(&mut client, "ping").await, "ping");
    }
    for mut side in [client, socket] {
        let end = timeout(TIMEOUT, side.read(&mut [0])).await;
        assert!(matches!(end.unwrap(), Ok(0)));
    }
    gateway.idle().await;
}

#[tokio::test]
async fn a_websocket_counts_as_an_open_connection() {
    let backend = Switching::start().await;
    let setup = Setup::new().top("[server]\nmax_connections = 1");
    let gateway = backend.gateway_of(setup).await;
    let mut client = ask(&gateway, "/v1/realtime?model=m", "websocket").await;
    let (socket, _) = backend.switch(SWITCHED).await;
    read_until(&mut client, "\r\n\r\n").await;
    let mut second = ask(&gateway, "/nothing", "none").await;
    let early = timeout(Duration::from_millis(200), second.read(&mut [0])).await;
    assert!(early.is_err(), "the second connection is served");
    drop((client, socket));
    let answer = timeout(TIMEOUT, second.read(&mut [0])).await;
    assert!(matches!(answer.unwrap(), Ok(1)));
}

#[tokio::test]
async fn the_end_of_the_backend_ends_the_websocket() {
    let backend = Switching::start().await;
    let gateway = backend.gateway().await;
    let mut client = ask(&gateway, "/v1/realtime?model=m", "websocket").await;
    let (socket, _) = backend.switch(SWITCHED).await;
    read_until(&mut client, "\r\n\r\n").await;
    drop(socket);
    assert_eq!(
        timeout(TIMEOUT, client.read(&mut [0]))
            .await
            .unwrap()
            .unwrap(),
        0
    );
    drop(client);
    gateway.idle().await;
}

#[tokio::test]
async fn a_backend_may_refuse_a_websocket() {
    let backend = Switching::start().await;
    let gateway = backend.gateway().await;
    let mut client = ask(&gateway, "/v1/realtime?model=m", "websocket").await;
    let refusal = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
    let (_socket, _) = backend.switch(refusal).await;
    let answer = read_until(&mut client, "\r\n\r\nno").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    gateway.idle().await;
}

#[tokio::test]
async fn no_other_protocol_passes() {
    let backend = Switching::start().await;
    let gateway = backend.gateway().await;
    let mut client = ask(&gateway, "/v1/x?model=m", "h2c").await;
    let (_socket, head) = backend
        .switch("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        .await;
    assert!(!head.contains("upgrade"), "{head}");
    let answer = read_until(&mut client, "\r\n\r\nok").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_websockets_bytes_are_logged_and_its_101_has_no_length() {
    let backend = Switching::start().await;
    let gateway = backend.gateway().await;
    let mut client = ask(&gateway, "/v1/realtime?model=m", "websocket").await;
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\
                    Content-Length: 0\r\nSec-WebSocket-Accept: abc\r\nSec-WebSocket-Protocol: realtime\r\n\
                    Set-Cookie: a=1\r\n\r\n";
    let (mut socket, _) = backend.switch(switched).await;
    let answer = read_until(&mut client, "\r\n\r\n").await.to_lowercase();
    assert!(!answer.contains("content-length"), "{answer}");
    assert!(!answer.contains("transfer-encoding"), "{answer}");
    for header in [
        "sec-websocket-accept: abc",
        "sec-websocket-protocol: realtime",
        "set-cookie: a=1",
    ] {
        assert!(answer.contains(header), "{answer}");
    }
    socket.write_all(b"12345").await.unwrap();
    assert_eq!(read_until(&mut client, "12345").await, "12345");
    drop(socket);
    assert_eq!(
        timeout(TIMEOUT, client.read(&mut [0]))
            .await
            .unwrap()
            .unwrap(),
        0
    );
    drop(client);
    gateway.logs(&["status=101", "bytes=5"]).await;
}
