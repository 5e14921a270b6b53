//! Errors in answers of status 200: as the first event, as the body, or as a stream without any event.

use tower_triage::endpoints::ErrorInBody;
use tower_triage::upstream::Forward;

use super::{Failure, SOON, bind, post, send, text, timeout};

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn an_error_as_the_first_event_is_told_with_the_head() {
    for (pieces, expected) in [
        (&["data: {\"choices\":[]}\n\n"][..], None),
        (&[": hi\n\nda", "ta: {\"choices\":[]}\n\n"], None),
        (
            &["data: {\"error\":{\"code\":500}}\n\n"],
            Some(ErrorInBody::Failed),
        ),
        (
            &[": hi\n\nda", "ta: {\"err", "or\":\"x\"}\n\n"],
            Some(ErrorInBody::Failed),
        ),
        (
            &[
                "event: error\n",
                "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n",
            ],
            Some(ErrorInBody::Overloaded),
        ),
    ] {
        let (upstream, to) = bind().await;
        let answering = tokio::spawn(async move {
            let mut connection = upstream.accept().await;
            connection.request().await;
            connection.send(EVENTS).await;
            for piece in pieces {
                connection.send(piece).await;
            }
        });
        let answer = send(&Forward::new(), post(&to, "{}")).await;
        answering.await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.extensions().get(), expected.as_ref(), "{pieces:?}");
        assert_eq!(text(answer).await, pieces.concat());
    }
}

#[tokio::test]
async fn a_stream_without_an_event_broke_off() {
    for stream in ["", ": hi\n\n", "data: [DONE]\n\n"] {
        let (upstream, to) = bind().await;
        let answering = tokio::spawn(async move {
            let mut connection = upstream.accept().await;
            connection.request().await;
            connection.send(&format!("{EVENTS}{stream}")).await;
        });
        let answer = send(&Forward::new(), post(&to, "{}")).await;
        answering.await.unwrap();
        let failure = Failure::read(answer).await;
        assert_eq!(
            (failure.status, &*failure.code),
            (502, "upstream_failed"),
            "{stream:?}"
        );
    }
}

#[tokio::test]
async fn the_head_of_a_slow_stream_does_not_wait_for_its_first_event() {
    for begun in ["", ": hi\n\n", "data: {\"er"] {
        let (upstream, to) = bind().await;
        let forward = Forward::new();
        let asked = tokio::spawn(async move { send(&forward, post(&to, "{}")).await });
        let mut connection = timeout(SOON, upstream.accept()).await.unwrap();
        connection.request().await;
        connection.send(&format!("{EVENTS}{begun}")).await;
        let answer = asked.await.unwrap(); // while the connection is silent
        assert_eq!(answer.status(), 200);
        drop(connection);
        assert_eq!(text(answer).await, begun);
    }
}

#[tokio::test]
async fn bodies_that_are_errors_are_told_with_the_head() {
    for (status, body, expected) in [
        (
            200,
            r#"{"error":{"message":"x"}}"#,
            Some(ErrorInBody::Failed),
        ),
        (200, r#"{"id":"x","error":null}"#, None),
        (
            503,
            r#"{"error":{"code":"queue_full"}}"#,
            Some(ErrorInBody::Overloaded),
        ),
        (503, r#"{"error":{"message":"Loading model"}}"#, None),
        (
            429,
            r#"{"error":{"code":"insufficient_quota"}}"#,
            Some(ErrorInBody::QuotaExceeded),
        ),
        (500, r#"{"error":{"code":"queue_full"}}"#, None),
    ] {
        let (upstream, to) = bind().await;
        let answering = tokio::spawn(async move {
            let mut connection = upstream.accept().await;
            connection.request().await;
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            );
            connection.send(&(head + body)).await;
        });
        let answer = send(&Forward::new(), post(&to, "{}")).await;
        answering.await.unwrap();
        assert_eq!(answer.status(), status);
        assert_eq!(answer.extensions().get(), expected.as_ref(), "{body}");
        assert_eq!(text(answer).await, body);
    }
}
