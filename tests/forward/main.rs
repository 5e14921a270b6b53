//! `Forward` against endpoints that behave, misbehave and vanish, over real sockets.

#[path = "../support/http2_frames.rs"]
mod http2_frames;
#[path = "../support/log.rs"]
mod log;
#[path = "../support/upstream.rs"]
mod upstream;

mod bodies;
mod early_answers;
mod failed_answers;
mod first_events;
mod first_piece;
mod grpc;
mod http2;
mod http2_ends;
mod http2_streams;
mod interim;
mod kept_connections;
mod own_headers;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod trailers;

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tokio::time::timeout;
use tower::ServiceExt;
use tower_triage::admit::Capacity;
use tower_triage::endpoints::{
    Decision, Endpoint, Endpoints, Model, NoResponse, Registry, Requirements,
};
use tower_triage::upstream::{Forward, ForwardBody, PeerAddr};
use upstream::Upstream;

const SOON: Duration = Duration::from_secs(60);

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// An upstream that is not accepting yet, and the decision for a request to it.
async fn bind() -> (Upstream, Decision) {
    let upstream = Upstream::bind().await;
    let to = endpoint(format!("http://{}", upstream.addr()));
    (upstream, to)
}

fn endpoint(url: String) -> Decision {
    in_service(Endpoint::new("gpu-1", url.parse().unwrap()))
}

/// The decision for a request that only `endpoint` can serve.
fn in_service(endpoint: Endpoint) -> Decision {
    let registry = Registry::new(vec![endpoint.model(Model::new("m"))]).unwrap();
    let endpoints = Endpoints::new(registry);
    let lease = endpoints
        .try_lease(&endpoints.demand(&Requirements::new("m")))
        .unwrap();
    let decision = lease.decision().clone();
    endpoints.release(lease);
    decision
}

fn post(to: &Decision, body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::post("/v1/chat/completions?x=1").extension(to.clone());
    request.body(body.into()).unwrap()
}

async fn send<B>(forward: &Forward<B>, request: Request<B>) -> Response<ForwardBody>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let answer = forward.clone().oneshot(request);
    timeout(SOON, answer)
        .await
        .expect("an answer in time")
        .unwrap()
}

async fn text(response: Response<ForwardBody>) -> String {
    let body = timeout(SOON, response.into_body().collect())
        .await
        .expect("a body in time");
    String::from_utf8(body.unwrap().to_bytes().into()).unwrap()
}

/// The response in place of an endpoint's answer.
struct Failure {
    status: u16,
    code: String,
    message: String,
    no_response: Option<NoResponse>,
}

impl Failure {
    async fn read(response: Response<ForwardBody>) -> Self {
        let status = response.status().as_u16();
        let no_response = response.extensions().get().copied();
        assert_eq!(response.headers()["content-type"], "application/json");
        let body: Value = serde_json::from_str(&text(response).await).unwrap();
        let said = |field: &str| body["error"][field].as_str().unwrap().to_owned();
        assert!(said("message").contains("'gpu-1'"), "{body}");
        assert_eq!(body["error"]["param"], Value::Null);
        Self {
            status,
            code: said("code"),
            message: said("message"),
            no_response,
        }
    }

    #[track_caller]
    fn is(&self, status: u16, code: &str, no_response: impl Into<Option<NoResponse>>) {
        let got = (self.status, &*self.code, self.no_response);
        assert_eq!(got, (status, code, no_response.into()), "{}", self.message);
    }
}

#[tokio::test]
async fn a_request_arrives_unchanged_except_hop_by_hop_headers() {
    let upstream = Upstream::bind().await;
    let to = endpoint(format!("http://{}/base/", upstream.addr()));
    let serve = async {
        let mut connection = upstream.accept().await;
        let (head, body) = connection.request().await;
        let answer = "HTTP/1.1 201 Created\r\nconnection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=9\r\n\
                      x-end: 1\r\ncontent-length: 2\r\n\r\nok";
        connection.send(answer).await;
        (head, body)
    };
    let mut request = post(&to, "{\"model\":\"m\"}");
    let headers = [
        ("host", "gateway"),
        ("connection", "close, x-hop"),
        ("x-hop", "1"),
        ("authorization", "Bearer x"),
        ("content-length", "99"),
    ];
    for (name, value) in headers {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
        .extensions_mut()
        .insert(PeerAddr(([192, 0, 2, 7], 1).into()));
    let forward = Forward::new();
    let ((head, body), response) = tokio::join!(serve, send(&forward, request));

    assert!(
        head.starts_with("post /base/v1/chat/completions?x=1 http/1.1\r\n"),
        "{head}"
    );
    let mut lines: Vec<_> = head.trim_end().lines().skip(1).collect();
    lines.sort_unstable();
    let host = format!("host: {}", upstream.addr());
    assert_eq!(
        lines,
        [
            "authorization: bearer x",
            "content-length: 13",
            "forwarded: for=192.0.2.7;host=\"gateway\";proto=http",
            &host,
            "x-forwarded-for: 192.0.2.7",
            "x-forwarded-host: gateway",
            "x-forwarded-proto: http",
        ]
    );
    assert_eq!(body, "{\"model\":\"m\"}");
    assert_eq!(response.status(), StatusCode::CREATED);
    let names: Vec<_> = response
        .headers()
        .keys()
        .map(|name| name.as_str())
        .collect();
    assert_eq!(names, ["x-end", "content-length"]);
    assert_eq!(text(response).await, "ok");
}

#[tokio::test]
async fn an_answer_is_passed_on_while_it_is_made() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let serve = async {
        let mut connection = upstream.accept().await;
        connection.request().await;
        connection
            .send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
            .await;
        connection
    };
    let (mut connection, response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    assert!(!response.headers().contains_key("transfer-encoding"));
    let mut body = response.into_body();
    let first = timeout(SOON, body.frame())
        .await
        .expect("the first piece, before the second is made");
    assert_eq!(first.unwrap().unwrap().into_data().unwrap(), "one");
    connection.send("3\r\ntwo\r\n0\r\n\r\n").await;
    assert_eq!(body.collect().await.unwrap().to_bytes(), "two");
}

#[tokio::test]
async fn hanging_up_before_the_answer_closes_the_connection() {
    let (upstream, to) = bind().await;
    let answer = tokio::spawn(Forward::new().oneshot(post(&to, "{}")));
    let mut connection = upstream.accept().await;
    connection.request().await;
    answer.abort();
    timeout(SOON, connection.closed())
        .await
        .expect("the connection is closed");
}

#[tokio::test]
async fn hanging_up_during_the_answer_closes_the_connection() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let serve = async {
        let mut connection = upstream.accept().await;
        connection.request().await;
        connection
            .send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
            .await;
        connection
    };
    let (connection, response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    drop(response);
    timeout(SOON, connection.closed())
        .await
        .expect("the connection is closed");
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_unreachable() {
    let (upstream, to) = bind().await;
    drop(upstream);
    let response = send(&Forward::new(), post(&to, "{}")).await;
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_unreachable", NoResponse::Unreachable);
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn https_without_the_tls_feature_is_unreachable() {
    let to = endpoint("https://127.0.0.1:9".into());
    let response = send(&Forward::new(), post(&to, "{}")).await;
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_unreachable", NoResponse::Unreachable);
    assert!(
        failure.message.contains("feature `tls`"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn an_endpoints_own_error_is_not_taken_for_ours() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let serve = async {
        let error = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
        upstream.accept().await.answer(error).await;
    };
    let ((), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert!(response.extensions().get::<NoResponse>().is_none());
}

#[tokio::test]
async fn an_endpoint_that_closes_without_an_answer_has_failed() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let serve = async { _ = upstream.accept().await.request().await };
    let ((), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    let failure = Failure::read(response).await;
    failure.is(502, "upstream_failed", NoResponse::Reset);
}

#[tokio::test]
async fn a_truncated_answer_is_a_body_error() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let serve = async {
        let mut connection = upstream.accept().await;
        connection.request().await;
        connection
            .send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
            .await;
    };
    let ((), response) = tokio::join!(serve, send(&forward, post(&to, "{}")));
    assert_eq!(response.status(), StatusCode::OK);
    let error = timeout(SOON, response.into_body().collect())
        .await
        .unwrap()
        .unwrap_err();
    assert!(error.to_string().contains("broke off"), "{error}");
}

#[tokio::test]
async fn only_open_connections_are_reused() {
    let (upstream, to) = bind().await;
    let forward = Forward::new();
    let ask = async || text(send(&forward, post(&to, "{}")).await).await;

    let mut connection = upstream.accept_while(ask(), OK).await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(10)).await; // until the client has it back
        let (_, answer) = tokio::join!(connection.answer(OK), ask());
        assert_eq!(answer, "ok");
    }
    for _ in 0..5 {
        drop(connection);
        tokio::time::sleep(Duration::from_millis(10)).await; // until the client has seen it
        connection = upstream.accept_while(ask(), OK).await;
    }
}

#[tokio::test]
async fn a_request_without_a_decision_is_a_500() {
    let request = Request::get("/").body(Full::default()).unwrap();
    let response = send(&Forward::new(), request).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text(response).await.contains("RouteLayer"));
}
