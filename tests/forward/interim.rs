//! Interim responses (1xx) of an endpoint.

use tokio::io::AsyncWriteExt;
use tower_triage::endpoints::NoResponse;
use tower_triage::upstream::Forward;

use super::http2::http2;
use super::http2_frames::{Frames, early_hints};
use super::{Failure, OK, bind, post, send, text};

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n";

#[tokio::test]
async fn an_answer_may_follow_interim_responses() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let serve = async {
        let mut connection = upstream.accept().await;
        connection.request().await;
        connection.send(&HINT.repeat(100)).await;
        connection.send(OK).await;
        connection
    };
    let (_connection, response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "ok");
}

#[tokio::test]
async fn interim_responses_without_an_end_are_a_failure() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let serve = async {
        let mut connection = upstream.accept().await;
        connection.request().await;
        let hints = HINT.repeat(1000);
        while connection.0.write_all(hints.as_bytes()).await.is_ok() {}
    };
    let ((), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
}

#[tokio::test]
async fn an_answer_over_http2_may_follow_interim_responses() {
    let (upstream, _) = bind().await;
    let to = http2(format!("http://{}", upstream.addr()));
    let forward = Forward::new();
    let serve = async {
        let mut frames = Frames::begin(upstream.accept().await.0).await;
        let (stream, _) = frames.request().await;
        let hints = early_hints(stream).repeat(100);
        frames.0.write_all(&hints).await.unwrap();
        frames.answer(stream, "ok").await;
        frames
    };
    let (_frames, response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "ok");
}

#[tokio::test]
async fn interim_responses_over_http2_without_an_end_are_a_failure() {
    let (upstream, _) = bind().await;
    let to = http2(format!("http://{}", upstream.addr()));
    let forward = Forward::new();
    let serve = async {
        let mut frames = Frames::begin(upstream.accept().await.0).await;
        let (stream, _) = frames.request().await;
        let hints = early_hints(stream).repeat(1000);
        while frames.0.write_all(&hints).await.is_ok() {}
    };
    let ((), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
}
