//! Failed answers that are kept while their request is retried at another endpoint. The first one's slot is free meanwhile.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tower::{Layer, ServiceExt};
use tower_triage::endpoints::{Endpoint, Model, Registry};
use tower_triage::route::RouteBody;
use tower_triage::upstream::Forward;
use tower_triage::{QueueConfig, RouteLayer};

use super::SOON;
use super::upstream::{Connection, Upstream};

/// Two endpoints of one slot each, of which one is busy.
struct Two {
    layer: RouteLayer,
    forward: Forward<RouteBody<Full<Bytes>>>,
    failing: Upstream,
    /// The other one, and what it is busy with.
    busy: (Upstream, Connection, JoinHandle<Response<String>>),
}

impl Two {
    async fn new(queue: QueueConfig) -> Self {
        let upstreams = [Upstream::bind().await, Upstream::bind().await];
        let endpoints = ["a", "b"].iter().zip(&upstreams).map(|(name, upstream)| {
            let url = format!("http://{}", upstream.addr()).parse().unwrap();
            let endpoint = Endpoint::new(*name, url).max_concurrent(1);
            endpoint.model(Model::new("m"))
        });
        let registry = Registry::new(endpoints.collect::<Vec<_>>()).unwrap();
        let layer = RouteLayer::builder(registry).queue(queue).build();
        let forward = Forward::new();
        let asked = ask(&layer, &forward);
        let [a, b] = upstreams;
        let (failing, busy, mut connection) = tokio::select! {
            connection = a.accept() => (b, a, connection),
            connection = b.accept() => (a, b, connection),
        };
        connection.request().await;
        Self {
            layer,
            forward,
            failing,
            busy: (busy, connection, asked),
        }
    }

    fn ask(&self) -> JoinHandle<Response<String>> {
        ask(&self.layer, &self.forward)
    }
}

fn ask(
    layer: &RouteLayer,
    forward: &Forward<RouteBody<Full<Bytes>>>,
) -> JoinHandle<Response<String>> {
    let request = Request::post("/").body(Full::from(r#"{"model":"m"}"#));
    let answer = layer.layer(forward.clone()).oneshot(request.unwrap());
    tokio::spawn(async {
        let (head, body) = answer.await.unwrap().into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        Response::from_parts(head, String::from_utf8(text.into()).unwrap())
    })
}

#[tokio::test]
async fn an_answer_over_the_limit_holds_no_connection() {
    let two = Two::new(QueueConfig::default()).await;
    let mut asked = vec![];
    for _ in 0..5 {
        asked.push(two.ask());
        let mut connection = two.failing.accept().await;
        let begun = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 1000000\r\n\r\nbegun";
        connection.answer(begun).await;
        timeout(SOON, connection.closed())
            .await
            .expect("the connection is closed");
    }
    assert!(asked.iter().all(|asked| !asked.is_finished()));
    assert_eq!(two.layer.handle().status().depth, 5);
    drop(two.busy);
}

#[tokio::test]
async fn an_endless_answer_is_not_kept() {
    let two = Two::new(QueueConfig::default()).await;
    let head = "HTTP/1.1 502 Bad Gateway\r\ntransfer-encoding: chunked\r\n\r\n";
    for length in [5, 100_000] {
        let asked = two.ask();
        let mut connection = two.failing.accept().await;
        let chunk = "x".repeat(length);
        connection
            .answer(&format!("{head}{length:x}\r\n{chunk}\r\n"))
            .await;
        timeout(SOON, connection.closed())
            .await
            .expect("the connection is closed");
        assert!(!asked.is_finished());
    }
}

#[tokio::test]
async fn a_short_answer_is_kept_and_its_connection_too() {
    let two = Two::new(QueueConfig::default().max_size(0)).await;
    let answer = "HTTP/1.1 503 Service Unavailable\r\nx-own: 1\r\ncontent-length: 6\r\n\r\nbroken";
    let mut connection: Option<Connection> = None;
    for _ in 0..3 {
        let asked = two.ask();
        let mut connected = match connection {
            // The pooled connection, unless it is not back in the pool yet.
            Some(kept) => tokio::select! {
                _ = kept.0.readable() => kept,
                new = two.failing.accept() => new,
            },
            None => two.failing.accept().await,
        };
        connected.answer(answer).await;
        let answer = timeout(SOON, asked).await.expect("an answer").unwrap();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()["x-own"], "1");
        assert_eq!(answer.headers()["content-length"], "6");
        assert!(answer.headers().contains_key("x-triage-endpoint"));
        assert_eq!(answer.body(), "broken");
        connection = Some(connected);
    }
}

#[tokio::test]
async fn an_answer_not_kept_is_replaced_by_our_own() {
    let two = Two::new(QueueConfig::default().max_size(0)).await;
    let asked = two.ask();
    let answer = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 7\r\nx-own: 1\r\ncontent-encoding: gzip\r\n\
                  content-length: 1000000\r\n\r\n";
    let mut connection = two.failing.accept().await;
    connection.answer(answer).await;
    let answer = timeout(SOON, asked).await.expect("an answer").unwrap();
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.headers()["retry-after"], "7");
    assert!(answer.headers().contains_key("x-triage-endpoint"));
    assert!(!answer.headers().contains_key("content-encoding"));
    let body: Value = serde_json::from_str(answer.body()).unwrap();
    assert_eq!(body["error"]["code"], "upstream_failed");
}
