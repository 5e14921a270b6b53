//! Uploads that wait over one HTTP/2 connection to an axum app, with the default windows of hyper's client and server.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower_triage::queue::{BodyMemory, ReadAheadLayer};
use tower_triage::{QueueConfig, QueueLayer};

use super::http_app::until;

const LIMIT: Duration = Duration::from_secs(60);

/// Serves an app as `axum::serve` does.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (io, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(app.clone());
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                _ = server.serve_connection(TokioIo::new(io), service).await;
            });
        }
    });
    addr
}

async fn connect(addr: SocketAddr) -> SendRequest<Body> {
    let io = TokioIo::new(TcpStream::connect(addr).await.unwrap());
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn upload(
    sender: &SendRequest<Body>,
    body: Body,
) -> JoinHandle<hyper::Result<(StatusCode, Bytes)>> {
    let sent = sender
        .clone()
        .send_request(Request::post("http://localhost/").body(body).unwrap());
    tokio::spawn(async move {
        let response = sent.await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    })
}

fn length() -> Router {
    Router::new()
        .route(
            "/",
            post(|body: Bytes| async move { body.len().to_string() }),
        )
        .layer(DefaultBodyLimit::disable())
}

#[tokio::test]
async fn all_uploads_of_a_connection_are_served_though_they_wait() {
    let memory = BodyMemory::new(64 << 20);
    let queue = QueueLayer::limit(1);
    let handle = queue.handle();
    let addr = serve(length().layer(queue.read_ahead(memory.clone()))).await;
    let sender = connect(addr).await;
    let slot = handle.gate().unwrap().try_acquire(&()).unwrap();
    let uploads: Vec<_> = (0..8)
        .map(|_| upload(&sender, Body::from(vec![7; 768 << 10])))
        .collect();
    until("all wait and are read", || {
        handle.status().depth == 8 && memory.used() == 8 * (768 << 10)
    })
    .await;
    drop(slot);
    let all = async {
        for upload in uploads {
            let answer = upload.await.unwrap().unwrap();
            assert_eq!(answer, (StatusCode::OK, Bytes::from("786432")));
        }
    };
    timeout(LIMIT, all)
        .await
        .expect("the connection stands still");
    assert_eq!(memory.used(), 0);
}

#[tokio::test]
async fn a_body_that_exceeds_its_limit_is_left_unread() {
    let memory = BodyMemory::new(64 << 20);
    let queue = QueueLayer::limit(1);
    let handle = queue.handle();
    let queue = queue.read_ahead(memory.clone()).max_body(1000);
    let addr = serve(length().layer(queue)).await;
    let sender = connect(addr).await;
    let slot = handle.gate().unwrap().try_acquire(&()).unwrap();
    let large = upload(&sender, Body::from(vec![7; 1001]));
    let small = upload(&sender, Body::from(vec![7; 1000]));
    until("both wait, one is read", || {
        handle.status().depth == 2 && memory.used() == 1000
    })
    .await;
    drop(slot);
    for (upload, length) in [(large, "1001"), (small, "1000")] {
        let answer = timeout(LIMIT, upload).await.unwrap().unwrap().unwrap();
        assert_eq!(answer, (StatusCode::OK, Bytes::from(length)));
    }
}

#[tokio::test]
async fn a_client_that_resets_its_upload_leaves_the_queue() {
    let memory = BodyMemory::new(64 << 20);
    let queue = QueueLayer::limit(1);
    let handle = queue.handle();
    let addr = serve(length().layer(queue.read_ahead(memory.clone()))).await;
    let sender = connect(addr).await;
    let _slot = handle.gate().unwrap().try_acquire(&()).unwrap();
    let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"first"))]);
    let broken = stream::once(async { Err(std::io::Error::other("broken")) });
    // The body breaks off once the part before it was read.
    let read = memory.clone();
    let pause = stream::once(async move {
        until("it is read", || read.used() == 5).await;
        Ok(Bytes::new())
    });
    let body = Body::from_stream(first.chain(pause).chain(broken));
    let upload = upload(&sender, body);
    until("it has left", || {
        handle.status().stats.cancelled == 1 && memory.used() == 0
    })
    .await;
    assert_eq!(handle.status().depth, 0);
    assert!(upload.await.unwrap().is_err());
}

#[tokio::test]
async fn reading_ahead_works_around_other_layers_than_a_plain_queue() {
    let queue = QueueLayer::new(QueueConfig::new(1)).per_key(|request| request.method().as_str());
    let queue = queue.map_response_body(Body::new);
    let queue = ReadAheadLayer::new(queue, BodyMemory::new(1 << 20));
    let addr = serve(length().layer(queue)).await;
    let sender = connect(addr).await;
    for body in [Body::empty(), Body::new(Full::from("four"))] {
        let answer = upload(&sender, body).await.unwrap().unwrap();
        assert_eq!(answer.0, StatusCode::OK);
    }
}
