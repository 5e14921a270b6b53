//! Answers whose head is there while the first piece of the body is not, and answers that become silent later.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::task::JoinHandle;
use tokio::time::{advance, pause, resume, timeout};
use tower_triage::endpoints::{Decision, NoResponse};
use tower_triage::upstream::{Forward, ForwardBody};

use super::upstream::Connection;
use super::{Failure, SOON, bind, post, send, text};

const SIZED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\n\
                      transfer-encoding: chunked\r\n\r\n";
const GRPC: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/grpc+proto\r\ntransfer-encoding: chunked\r\n\r\n";
const IDLE: Duration = Duration::from_secs(7);

fn forward() -> Forward<Full<Bytes>> {
    Forward::new().idle_timeout(IDLE)
}

async fn ask(to: &Decision) -> Response<ForwardBody> {
    send(&forward(), post(to, "{}")).await
}

#[tokio::test]
async fn an_answer_that_breaks_before_its_first_byte_is_502() {
    for head in [SIZED, CHUNKED, EVENTS] {
        let (upstream, to) = bind().await;
        let serve = async { upstream.accept().await.answer(head).await };
        let (response, ()) = tokio::join!(ask(&to), serve);
        let failure = Failure::read(response).await;
        failure.is(502, "upstream_failed", NoResponse::Reset);
    }
}

#[tokio::test]
async fn an_empty_stream_is_an_empty_answer() {
    let (upstream, to) = bind().await;
    let answer = format!("{CHUNKED}0\r\n\r\n");
    let serve = async { upstream.accept().await.answer(&answer).await };
    let (response, ()) = tokio::join!(ask(&to), serve);
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "");
}

#[tokio::test]
async fn the_head_of_a_stream_goes_out_before_a_late_first_piece() {
    for head in [EVENTS, GRPC] {
        let (upstream, to) = bind().await;
        let serve = async {
            let mut connection = upstream.accept().await;
            connection.answer(head).await;
            connection
        };
        let (response, mut connection) = tokio::join!(ask(&to), serve);
        assert_eq!(response.status(), 200);
        connection.send("2\r\nok\r\n0\r\n\r\n").await;
        assert_eq!(text(response).await, "ok");
    }
}

/// Asks an endpoint that sends `head`. Returns its connection, and the answer, which is still waiting after 300 ms.
async fn waiting(head: &str) -> (Connection, JoinHandle<Response<ForwardBody>>) {
    let (upstream, to) = bind().await;
    let forward = forward();
    let answer = tokio::spawn(async move { send(&forward, post(&to, "{}")).await });
    let mut connection = upstream.accept().await;
    connection.answer(head).await;
    let early = timeout(Duration::from_millis(300), async {
        while !answer.is_finished() {
            tokio::task::yield_now().await;
        }
    });
    assert!(early.await.is_err());
    (connection, answer)
}

#[tokio::test]
async fn an_answer_that_breaks_late_before_its_first_byte_is_502() {
    for head in [SIZED, CHUNKED] {
        let (connection, answer) = waiting(head).await;
        drop(connection);
        let failure = Failure::read(answer.await.unwrap()).await;
        failure.is(502, "upstream_failed", NoResponse::Reset);
    }
}

#[tokio::test]
async fn an_answer_without_a_body_does_not_wait() {
    for head in [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 8\r\n\r\n",
    ] {
        let (upstream, to) = bind().await;
        let serve = async {
            let mut connection = upstream.accept().await;
            connection.answer(head).await;
            connection
        };
        let (response, _connection) = tokio::join!(ask(&to), serve);
        assert!(response.body().is_end_stream(), "{head}");
    }
    let (upstream, to) = bind().await;
    let serve = async {
        let mut connection = upstream.accept().await;
        connection.answer(CHUNKED).await;
        connection
    };
    let head = Request::head("/").extension(to.clone());
    let head = head.body(Full::default()).unwrap();
    let forward = forward();
    let (response, _connection) = tokio::join!(send(&forward, head), serve);
    assert!(response.body().is_end_stream());
}

#[tokio::test]
async fn the_head_of_an_answer_waits_for_its_first_piece() {
    let (mut connection, answer) = waiting(CHUNKED).await;
    connection.send("2\r\nok\r\n0\r\n\r\n").await;
    assert_eq!(text(answer.await.unwrap()).await, "ok");

    let (mut connection, answer) = waiting(SIZED).await;
    connection.send("half").await;
    let response = answer.await.unwrap();
    assert_eq!(response.headers()["content-length"], "8");
    assert_eq!(response.body().size_hint().exact(), Some(8));
    connection.send("more").await;
    assert_eq!(text(response).await, "halfmore");
}

#[tokio::test]
async fn a_body_that_never_begins_is_504() {
    for head in [SIZED, CHUNKED] {
        let (upstream, to) = bind().await;
        let forward = forward().idle_timeout(Duration::from_millis(200));
        let serve = async {
            let mut connection = upstream.accept().await;
            connection.answer(head).await;
            connection
        };
        let (response, connection) = tokio::join!(send(&forward, post(&to, "{}")), serve);
        let failure = Failure::read(response).await;
        failure.is(504, "upstream_timeout", NoResponse::Timeout);
        closed(connection).await;
    }
}

/// Asserts that the client has closed the connection.
async fn closed(connection: Connection) {
    let closed = timeout(SOON, connection.closed()).await;
    closed.expect("the connection is closed");
}

#[tokio::test]
async fn a_silent_endpoint_ends_the_body_with_an_error() {
    for (head, piece) in [(SIZED, "half"), (CHUNKED, "4\r\nhalf\r\n")] {
        let (upstream, to) = bind().await;
        let serve = async {
            let mut connection = upstream.accept().await;
            connection.answer(&format!("{head}{piece}")).await;
            connection
        };
        let (response, connection) = tokio::join!(ask(&to), serve);
        let mut body = response.into_body();
        let half = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(half, "half");

        pause();
        let error = body.frame().await.unwrap().unwrap_err();
        resume();
        let error = error.to_string();
        assert!(error.contains("nothing for 7 s"), "{error}");
        closed(connection).await; // although the body is still there
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_does_not_run_the_clock() {
    let (upstream, to) = bind().await;
    let serve = async {
        let mut connection = upstream.accept().await;
        connection.answer(&format!("{SIZED}half")).await;
        connection
    };
    let (response, mut connection) = tokio::join!(ask(&to), serve);
    pause();
    advance(IDLE * 100).await;
    resume();
    connection.send("more").await;
    assert_eq!(text(response).await, "halfmore");
}
