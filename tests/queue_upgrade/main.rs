//! Upgraded connections: a response without a body holds no slot of a queue.
#![cfg(not(loom))]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tower_triage::{
    Gate, Priority, QueueConfig, QueueHandle, QueueLayer, SlotPool, Ticket, WaitingRoomConfig,
};

/// Longer than every step here.
const LIMIT: Duration = Duration::from_secs(60);

/// Answers 101, and then echoes until the client closes; `held` is dropped after that.
fn upgrade(mut request: Request<Body>, held: impl Send + 'static) -> Response<Body> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let upgraded = TokioIo::new(upgraded.await.unwrap());
        let (mut from, mut to) = tokio::io::split(upgraded);
        _ = tokio::io::copy(&mut from, &mut to).await;
        drop(held);
    });
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    let response = response
        .header("connection", "upgrade")
        .header("upgrade", "echo");
    response.body(Body::empty()).unwrap()
}

async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    addr
}

/// A client that has requested an upgrade.
async fn ask(addr: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(addr).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    client.write_all(request).await.unwrap();
    client
}

/// Asserts that it is upgraded, and that its bytes come back.
async fn is_upgraded(client: &mut TcpStream) {
    let upgraded = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", head.escape_ascii());
        client.write_all(b"echo").await.unwrap();
        let mut echo = [0; 4];
        client.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"echo");
    };
    timeout(LIMIT, upgraded).await.expect("no upgrade");
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let becomes = async {
        while !is() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, becomes).await.expect(what);
}

#[tokio::test]
async fn an_upgraded_connection_holds_no_slot_of_the_queue() {
    let queue = QueueLayer::new(QueueConfig::new(1));
    let handle = queue.handle();
    let router = || Router::new().route("/", get(async |request| upgrade(request, ())));
    two_are_upgraded(serve(router().layer(queue)).await, &handle).await;

    let queue = QueueLayer::new(QueueConfig::new(1)).map_response_body(Body::new);
    let handle = queue.handle();
    two_are_upgraded(serve(router().layer(queue)).await, &handle).await;
}

/// Upgrades two connections through a queue of one slot.
async fn two_are_upgraded(addr: SocketAddr, handle: &QueueHandle) {
    let mut clients = [ask(addr).await, ask(addr).await];
    for client in &mut clients {
        is_upgraded(client).await;
    }
    until("slots are free", || handle.status().running == 0).await;
    assert_eq!(handle.status().served, 2);
}

#[tokio::test]
async fn an_exempt_upgrade_is_not_counted() {
    let queue = QueueLayer::new(QueueConfig::new(0))
        .exempt(|request| request.headers().contains_key("upgrade"));
    let handle = queue.handle();
    let router = Router::new().route("/", get(async |request| upgrade(request, ())));
    let addr = serve(router.layer(queue)).await;
    is_upgraded(&mut ask(addr).await).await;
    let status = handle.status();
    assert_eq!((status.depth, status.running, status.served), (0, 0, 0));
}

#[tokio::test]
async fn an_upgraded_connection_can_hold_a_gates_permit() {
    let gate = Gate::new(SlotPool::new(1), WaitingRoomConfig::default());
    let handler = {
        let gate = gate.clone();
        async move |request| {
            let ticket = Ticket::new(Priority::HIGHEST, Instant::now());
            match gate.acquire(ticket, ()).await {
                Ok(permit) => upgrade(request, permit),
                Err(_) => panic!("the room is neither full nor closed"),
            }
        }
    };
    let addr = serve(Router::new().route("/", get(handler))).await;
    let mut first = ask(addr).await;
    is_upgraded(&mut first).await;
    let mut second = ask(addr).await;
    until("the second waits", || gate.status().depth == 1).await;
    assert_eq!(gate.status().running, 1);
    drop(first);
    is_upgraded(&mut second).await;
    drop(second);
    until("the slot is free", || gate.status().running == 0).await;
}
