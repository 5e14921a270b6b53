//! Over real HTTP: a rejection from a full room against an answer from an idle echo service.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use axum::Router;
use axum::routing::post;
use support::{measure, subject};
use tower_triage::{QueueConfig, QueueLayer};

/// An app that echoes, or whose one slot and one chair are taken for good.
async fn serve(busy: bool) -> SocketAddr {
    let layer = QueueLayer::new(QueueConfig::new(1).max_size(1));
    let handle = layer.handle();
    let app = Router::new()
        .route("/", post(|body: String| async move { body }))
        .route("/forever", post(std::future::pending::<()>))
        .layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, app).await });
    if busy {
        for waiting in 0..2 {
            tokio::task::spawn_blocking(move || {
                let mut client = TcpStream::connect(addr).unwrap();
                ask(&mut client, "/forever");
                std::mem::forget(client);
            });
            while handle.status().running + handle.status().depth <= waiting {
                tokio::task::yield_now().await;
            }
        }
    }
    addr
}

fn ask(client: &mut TcpStream, path: &str) {
    let body = r#"{"model":"m"}"#;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.write_all((head + body).as_bytes()).unwrap();
}

fn round_trip(client: &mut TcpStream, status: &str) {
    ask(client, "/");
    let mut answer = [0; 1024];
    let read = client.read(&mut answer).unwrap();
    let line = std::str::from_utf8(&answer[..read]).unwrap();
    assert!(line.starts_with(&format!("HTTP/1.1 {status}")), "{line}");
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let connect = |busy| {
        let client = TcpStream::connect(runtime.block_on(serve(busy))).unwrap();
        client.set_nodelay(true).unwrap();
        client
    };
    let (mut idle, mut full) = (connect(false), connect(true));
    let mut subjects = [
        subject("an answer", |n| {
            (0..n).for_each(|_| round_trip(&mut idle, "200"))
        }),
        subject("a rejection", |n| {
            (0..n).for_each(|_| round_trip(&mut full, "503"))
        }),
    ];
    let times = measure(&mut subjects, 101, 200);
    println!("\nOver HTTP: a rejection from a full room against an idle echo  (goal: ≤ 1.0×)");
    println!("  an answer   {:>8.0} ns   1.00×", times[0]);
    println!(
        "  a rejection {:>8.0} ns   {:.2}×",
        times[1],
        times[1] / times[0]
    );
}
