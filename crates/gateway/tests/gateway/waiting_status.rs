//! Clients that are told their position while they wait.

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::client::ClientRequest;
use crate::process::{Setup, TIMEOUT};

pub(crate) fn asks(request: ClientRequest) -> ClientRequest {
    let request = request.header("x-queue-status", "sse");
    request.header("accept", "text/event-stream")
}

/// Reads until the body has said `text`.
pub(crate) async fn reads(response: &mut Response<Incoming>, text: &str) -> String {
    let mut said = String::new();
    while !said.contains(text) {
        let frame = timeout(TIMEOUT, response.body_mut().frame()).await;
        let frame = frame.unwrap_or_else(|_| panic!("{text:?} never comes after {said:?}"));
        let frame = frame.unwrap_or_else(|| panic!("no {text:?} in {said:?}"));
        let piece: Bytes = frame.unwrap().into_data().unwrap();
        said.push_str(std::str::from_utf8(&piece).unwrap());
    }
    said
}

#[tokio::test]
async fn a_client_hears_its_position_and_then_the_events() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;

    let mut response = asks(gateway.ask("m")).open().await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let comments = ": queue position=1\n\n: queue position=1\n\n";
    assert_eq!(reads(&mut response, comments).await, comments);
    assert_eq!(gateway.state().await.depth(), 1);

    running.answer("first");
    first.answer().await.assert_ok("first");
    let stream = backend.next().await.stream();
    stream.send("data: one\n\n");
    let said = reads(&mut response, "data: one\n\n").await;
    assert!(
        said.ends_with("\n\ndata: one\n\n") || said == "data: one\n\n",
        "{said}"
    );
    assert_eq!(gateway.state().await.running(), 1);
    stream.send("data: [DONE]\n\n");
    stream.end();
    let rest = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(rest, "data: [DONE]\n\n");
    gateway.idle().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_after_its_200_frees_its_place() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let response = asks(gateway.ask("m")).open().await;
    gateway.depth(1).await;
    drop(response);
    gateway.depth(0).await;
    running.answer("first");
    first.answer().await.assert_ok("first");
    gateway.idle().await;
    assert_eq!(backend.counts().arrived, 1);
}

#[tokio::test]
async fn a_wait_in_vain_ends_with_an_error_event() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .queue("max_wait_seconds = 0.2")
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let running = backend.next().await;
    let answer = asks(gateway.ask("m")).answer().await;
    assert_eq!(answer.status, 200);
    let (_, event) = answer.text().split_once("event: error\ndata: ").unwrap();
    let error: serde_json::Value = serde_json::from_str(event.trim_end()).unwrap();
    assert_eq!(error["error"]["code"], "queue_timeout");
    running.answer("first");
    first.answer().await.assert_ok("first");
}
