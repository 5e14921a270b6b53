//! Endpoints that answer before they have read the request's body, as with a 401 or a 413.

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;
use tower_triage::endpoints::NoResponse;
use tower_triage::upstream::Forward;

use super::bodies::upload;
use super::upstream::Connection;
use super::{Failure, SOON, bind, send, text};

pub(super) const TOO_LARGE: &str =
    "HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 9\r\n\r\ntoo large";

/// Far more bytes than the buffers of a connection hold.
pub(super) const LARGE: usize = 16 << 20;

/// Whether an early answer gets through depends on timing where it is not made sure.
pub(super) const TRIES: usize = 20;

/// Reads up to the first bytes of a request's body.
pub(super) async fn read_head<S: AsyncRead + Unpin>(connection: &mut Connection<S>) {
    let mut byte = [0];
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        assert_eq!(connection.0.read(&mut byte).await.unwrap(), 1);
        seen.push(byte[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_answer_to_a_large_body_arrives() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    for _ in 0..TRIES {
        let serve = async {
            let mut connection = upstream.accept().await;
            read_head(&mut connection).await;
            connection.send(TOO_LARGE).await;
        };
        let request = Request::post("/").extension(to.clone());
        let request = request
            .body(Full::from(Bytes::from(vec![0; LARGE])))
            .unwrap();
        let ((), response) = tokio::join!(serve, send(&forward, request));
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(text(response).await, "too large");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_answer_may_end_by_closing_the_connection() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    for _ in 0..TRIES {
        let serve = async {
            let mut connection = upstream.accept().await;
            read_head(&mut connection).await;
            connection
                .send("HTTP/1.0 413 Too Large\r\n\r\ntoo large")
                .await;
        };
        let request = Request::post("/").extension(to.clone());
        let body = Full::from(Bytes::from(vec![0; LARGE]));
        let ask = send(&forward, request.body(body).unwrap());
        let ((), response) = tokio::join!(serve, ask);
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(text(response).await, "too large");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_answer_to_a_streamed_body_arrives() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    for _ in 0..TRIES {
        let (mut body, request) = upload(&to, "/");
        let serve = async {
            let mut connection = upstream.accept().await;
            read_head(&mut connection).await;
            connection.send(TOO_LARGE).await;
        };
        let write = tokio::spawn(async move {
            let piece = Bytes::from(vec![0; 64 << 10]);
            while body.send_data(piece.clone()).await.is_ok() {}
        });
        let ((), response) = tokio::join!(serve, send(&forward, request));
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(text(response).await, "too large");
        timeout(SOON, write)
            .await
            .expect("the body is let go")
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_request_body_is_no_endpoint_failure() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    for _ in 0..TRIES {
        let serve = async { read_head(&mut upstream.accept().await).await };
        let request = Request::post("/").extension(to.clone());
        let request = request
            .body(Full::from(Bytes::from(vec![0; LARGE])))
            .unwrap();
        let ((), response) = tokio::join!(serve, send(&forward, request));
        let failure = Failure::read(response).await;
        failure.is(502, "upstream_failed", NoResponse::BodyNotSent);
    }
}

#[tokio::test]
async fn an_early_answers_end_closes_the_connection() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let (mut body, request) = upload(&to, "/");
    let serve = async {
        let mut connection = upstream.accept().await;
        read_head(&mut connection).await;
        let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno";
        connection.send(answer).await;
        connection
    };
    let (connection, response) = tokio::join!(serve, send(&forward, request));
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(text(response).await, "no");
    timeout(SOON, connection.closed())
        .await
        .expect("the connection is closed");
    let gone = async { while body.send_data("more".into()).await.is_ok() {} };
    timeout(SOON, gone).await.expect("the body is let go");
}

#[tokio::test]
async fn a_bodyless_early_answers_head_closes_the_connection() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let request = Request::post("/").extension(to.clone());
    let request = request
        .body(Full::from(Bytes::from(vec![0; LARGE])))
        .unwrap();
    let serve = async {
        let mut connection = upstream.accept().await;
        read_head(&mut connection).await;
        let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
        connection.send(answer).await;
        connection
    };
    let (mut connection, response) = tokio::join!(serve, send(&forward, request));
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    // The response is kept: its body is over.
    let mut read = 0;
    let rest = async {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(more @ 1..) = connection.0.read(&mut bytes).await {
            read += more;
        }
    };
    timeout(SOON, rest).await.expect("the connection is closed");
    assert!(read < LARGE, "all of the body was sent");
    drop(response);
}

#[tokio::test]
async fn an_endpoint_answering_early_still_gets_the_whole_body() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let (mut body, request) = upload(&to, "/");
    let serve = async {
        let mut connection = upstream.accept().await;
        read_head(&mut connection).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        connection.send(head).await;
        connection
    };
    let (mut connection, response) = tokio::join!(serve, send(&forward, request));
    let mut answer = response.into_body();
    for piece in ["one", "two"] {
        body.send_data(piece.into()).await.unwrap();
        super::bodies::read_to(&mut connection, piece).await;
        connection.send(&format!("3\r\n{piece}\r\n")).await;
        let frame = timeout(SOON, answer.frame()).await.expect("an echo");
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), piece);
    }
    drop(body);
    super::bodies::read_to(&mut connection, "0\r\n\r\n").await;
    connection.send("0\r\n\r\n").await;
    assert!(timeout(SOON, answer.frame()).await.unwrap().is_none());
    // The connection can be reused.
    let again = send(&forward, upload(&to, "/").1);
    let serve = super::bodies::read_to(&mut connection, "0\r\n\r\n");
    tokio::select! {
        _ = again => unreachable!("there is no answer yet"),
        () = serve => {}
    }
}
