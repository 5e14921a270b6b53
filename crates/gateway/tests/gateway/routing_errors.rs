//! Tests of errors in answers of status 200, and of endpoints that fail between client errors.

use http::Response;
use http_body_util::BodyExt;

use crate::backend::{Backend, BackendRequest, status};
use crate::process::{Gateway, Setup};

/// A gateway in front of two equal backends, of which the second one is well.
async fn beside_a_good_one(bad: &Backend) -> (Gateway, Backend) {
    let good = Backend::answering(|arrived: BackendRequest| {
        let stream = arrived.stream();
        stream.send("data: {\"choices\":[]}\n\n");
        stream.send("data: [DONE]\n\n");
        stream.end();
    })
    .await;
    let setup = Setup::new()
        .routing("strategy = \"round_robin\"\neject_seconds = 600")
        .backend("bad", bad, 4, &["m"])
        .backend("good", &good, 4, &["m"]);
    (setup.start().await, good)
}

fn events(text: &'static str) -> Response<String> {
    let response = Response::builder().header("content-type", "text/event-stream");
    response.body(text.to_owned()).unwrap()
}

#[tokio::test]
async fn an_error_as_the_first_event_costs_no_client_its_answer() {
    for first in [
        "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\"}}\n\ndata: [DONE]\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n",
        "error: {\"code\":500,\"message\":\"x\",\"type\":\"server_error\"}\n\n",
        "data: [DONE]\n\n",
        "",
    ] {
        let bad = Backend::answering(move |arrived| arrived.respond(events(first))).await;
        let (gateway, _good) = beside_a_good_one(&bad).await;
        for _ in 0..20 {
            let answer = gateway.ask("m").answer().await;
            assert!(answer.text().contains("choices"), "{first:?}: {answer:?}");
        }
        assert_eq!(gateway.state().await.healthy(), [false, true], "{first:?}");
        assert_eq!(bad.counts().arrived, 5);
    }
}

#[tokio::test]
async fn client_errors_keep_no_failing_endpoint_in_service() {
    let mut nth = 0;
    let bad = Backend::answering(move |arrived| {
        nth += 1;
        arrived.respond(status(if nth % 4 == 0 { 400 } else { 500 }));
    })
    .await;
    let (gateway, _good) = beside_a_good_one(&bad).await;
    let mut lost = 0;
    for _ in 0..40 {
        lost += usize::from(gateway.ask("m").answer().await.status != 200);
    }
    assert_eq!(lost, 6); // five failures, and a client error between them
    assert_eq!(gateway.state().await.healthy(), [false, true]);
}

#[tokio::test]
async fn an_error_in_a_stream_is_logged_as_such() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("a", &backend, 4, &["m"]);
    let gateway = setup.start().await;
    let (answer, stream) = tokio::join!(gateway.ask("m").path("/v1/completions").open(), async {
        let stream = backend.next().await.stream();
        stream.send("data: {\"choices\":[]}\n\n");
        stream
    });
    stream.send("data: {\"error\":{\"message\":\"x\"}}\n\n");
    stream.end();
    answer.into_body().collect().await.unwrap();
    gateway
        .logs(&[
            "path=\"/v1/completions\"",
            "result=\"error_in_stream\"",
            "status=200",
        ])
        .await;

    let sent = gateway.ask("m").path("/v1/embeddings").send();
    let body = r#"{"error":{"message":"x"}}"#.to_owned();
    let response = Response::builder().header("content-type", "application/json");
    backend
        .next()
        .await
        .respond(response.body(body.clone()).unwrap());
    assert_eq!(sent.answer().await.text(), body);
    gateway
        .logs(&["path=\"/v1/embeddings\"", "result=\"error_in_stream\""])
        .await;
    let metrics = gateway.get("/metrics").answer().await;
    assert!(
        metrics.text().contains("outcome=\"error_in_stream\"} 2"),
        "{}",
        metrics.text()
    );
}
