//! Streamed request bodies: they cannot be sent twice, and may break off.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tower::{ServiceBuilder, ServiceExt};
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::RequestBodyTimeoutLayer;
use tower_triage::endpoints::{Decision, NoResponse};
use tower_triage::upstream::Forward;

use super::upstream::Connection;
use super::{Failure, OK, SOON, bind, send, text};

/// A request whose body the test writes.
pub(super) fn upload(
    to: &Decision,
    path: &str,
) -> (Sender<Bytes, io::Error>, Request<Channel<Bytes, io::Error>>) {
    let (sender, body) = Channel::new(1);
    let request = Request::post(path).extension(to.clone());
    (sender, request.body(body).unwrap())
}

/// Reads from a connection until `text` has come.
pub(super) async fn read_to(connection: &mut Connection, text: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        assert_ne!(connection.0.read_buf(&mut seen).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_body_is_passed_on_while_it_is_made() {
    let (upstream, to) = bind().await;
    let (mut body, request) = upload(&to, "/");
    let answer = tokio::spawn(Forward::new().oneshot(request));
    let mut connection = upstream.accept().await;
    read_to(&mut connection, "transfer-encoding: chunked\r\n\r\n").await;
    for text in ["one", "two"] {
        body.send_data(text.into()).await.unwrap();
        read_to(&mut connection, text).await;
    }
    drop(body);
    read_to(&mut connection, "0\r\n\r\n").await;
    connection.send(OK).await;
    assert_eq!(text(answer.await.unwrap().unwrap()).await, "ok");
}

/// `RequestBodyTimeoutLayer` makes bodies that are not `Unpin`.
#[tokio::test(start_paused = true)]
async fn a_body_that_times_out_is_a_request_timeout() {
    let (upstream, to) = bind().await;
    let (mut sender, request) = upload(&to, "/");
    let answer = ServiceBuilder::new()
        .layer(RequestBodyTimeoutLayer::new(Duration::from_secs(5)))
        .service(Forward::new())
        .oneshot(request);
    let answer = tokio::spawn(answer);
    let mut connection = upstream.accept().await;
    sender.send_data("one".into()).await.unwrap();
    read_to(&mut connection, "one").await;
    let response = answer.await.unwrap().unwrap();
    assert_eq!(response.status(), 408);
    assert_eq!(response.extensions().get(), Some(&NoResponse::BodyNotSent));
    assert!(text(response).await.contains("\"request_body_timeout\""));
    drop(sender);
}

#[tokio::test]
async fn a_body_over_an_outer_limit_is_too_large() {
    let (upstream, to) = bind().await;
    let (mut sender, request) = upload(&to, "/");
    let answer = ServiceBuilder::new()
        .layer(RequestBodyLimitLayer::new(10))
        .service(Forward::new())
        .oneshot(request);
    let answer = tokio::spawn(answer);
    let mut connection = upstream.accept().await;
    sender.send_data("one".into()).await.unwrap();
    read_to(&mut connection, "one").await;
    sender.send_data("and more".into()).await.unwrap();
    let response = answer.await.unwrap().unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(response.extensions().get(), Some(&NoResponse::BodyNotSent));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["error"]["code"], "body_too_large");
}

#[tokio::test]
async fn a_get_has_its_streamed_body() {
    let (upstream, to) = bind().await;
    let (mut body, mut request) = upload(&to, "/_search");
    *request.method_mut() = http::Method::GET;
    let answer = tokio::spawn(Forward::new().oneshot(request));
    let mut connection = upstream.accept().await;
    body.send_data("query".into()).await.unwrap();
    drop(body);
    let all = timeout(SOON, read_to(&mut connection, "5\r\nquery\r\n0\r\n\r\n"));
    all.await.expect("the body");
    connection.send(OK).await;
    assert_eq!(text(answer.await.unwrap().unwrap()).await, "ok");
}

#[tokio::test]
async fn a_request_that_has_begun_is_not_sent_again() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let (body, request) = upload(&to, "/first");
    drop(body);
    let serve = async {
        let mut connection = upstream.accept().await;
        read_to(&mut connection, "0\r\n\r\n").await;
        connection.send(OK).await;
        connection
    };
    let ask = async { text(send(&forward, request).await).await };
    let (kept, _) = tokio::join!(serve, ask);

    let (mut body, request) = upload(&to, "/second");
    let serve = async {
        body.send_data("half".into()).await.unwrap();
        // The pooled connection, unless it is not back in the pool yet.
        let mut connection = tokio::select! {
            connection = upstream.accept() => connection,
            _ = kept.0.readable() => kept,
        };
        read_to(&mut connection, "half").await;
    };
    let ((), response) = tokio::join!(serve, send(&forward, request));
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_failed", NoResponse::BodyNotSent);

    let (body, request) = upload(&to, "/third");
    drop(body);
    let serve = async {
        let mut connection = upstream.accept().await;
        let (head, _) = connection.request().await;
        connection.send(OK).await;
        head
    };
    let (head, _) = tokio::join!(serve, send(&forward, request));
    assert!(head.starts_with("post /third "), "{head}");
}

#[tokio::test]
async fn a_truncated_request_body_is_the_clients_fault() {
    let (upstream, to) = bind().await;
    let (mut body, request) = upload(&to, "/");
    let forward = Forward::new();
    let serve = async {
        let mut connection = upstream.accept().await;
        body.send_data("half".into()).await.unwrap();
        read_to(&mut connection, "half").await;
        body.abort(io::ErrorKind::ConnectionReset.into());
        connection
    };
    let (connection, response) = tokio::join!(serve, send(&forward, request));
    let failure = Failure::read(response).await;
    failure.is(400, "request_body_failed", NoResponse::BodyNotSent);
    timeout(SOON, connection.closed())
        .await
        .expect("the connection is closed");
}

#[tokio::test]
async fn hanging_up_during_the_request_drops_connection_and_body() {
    let (upstream, to) = bind().await;
    let (mut body, request) = upload(&to, "/");
    let answer = tokio::spawn(Forward::new().oneshot(request));
    let mut connection = upstream.accept().await;
    body.send_data("half".into()).await.unwrap();
    read_to(&mut connection, "half").await;
    answer.abort();
    timeout(SOON, connection.closed())
        .await
        .expect("the connection is closed");
    let gone = async { while body.send_data("more".into()).await.is_ok() {} };
    timeout(SOON, gone).await.expect("the body is dropped");
}
