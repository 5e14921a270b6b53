//! The instructions that a request costs in a router, counted as those of a queue are.
//!
//! ```sh
//! cargo run --profile bench -p tower-triage-instructions --features route --bin route              # prints the table
//! cargo run --profile bench -p tower-triage-instructions --features route --bin route -- --check   # or --save
//! ```
//!
//! A request is a chat that names its model, and finds a slot free. Its response is read to the end. The figures are those of
//! the inner service less, with the same bodies.

mod figures;
mod report;
#[path = "../support/shared/mod.rs"]
#[allow(unused_imports, dead_code)] // it has more than is used here
mod support;

use std::convert::Infallible;
use std::hint::black_box;
use std::process::ExitCode;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service};
use tower_triage::RouteLayer;
use tower_triage::endpoints::{Endpoint, Model, Registry};

use report::Row;
use support::{Echo, client_headers, now};

fn main() -> ExitCode {
    report::main("route_figures.txt", rows(), run)
}

fn rows() -> Vec<Row> {
    let row = |name, subject| Row {
        name,
        subject,
        base: Some("route/inner"),
        peers: &[],
    };
    vec![
        row("free slot, one endpoint", "route/free"),
        row("free slot, two endpoints", "route/two"),
    ]
}

/// Runs `n` requests of a subject.
fn run(subject: &str, n: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    let runtime = runtime.expect("a runtime");
    let _entered = runtime.enter();
    match subject {
        "route/inner" => calls(Echo, n),
        "route/free" => calls(router(1).layer(Echo), n),
        "route/two" => calls(router(2).layer(Echo), n),
        _ => panic!("there is no subject {subject}"),
    }
}

const MODEL: &str = "llama3:8b";

const CHAT: &[u8] =
    br#"{"model": "llama3:8b", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}"#;

/// Returns a router before endpoints that serve the same model.
fn router(endpoints: usize) -> RouteLayer {
    let endpoint = |nth: usize| {
        let url = Uri::from_static("http://127.0.0.1:9001");
        Endpoint::new(format!("gpu-{nth}"), url).model(Model::new(MODEL))
    };
    let registry = Registry::new((0..endpoints).map(endpoint).collect());
    RouteLayer::builder(registry.expect("the registry is valid")).build()
}

fn calls<S, R>(mut service: S, n: u64)
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>, Error = Infallible>,
    R: Body<Data = Bytes>,
{
    let mut headers = client_headers();
    for _ in 0..n {
        headers = call(&mut service, headers);
    }
}

/// Runs one request, and returns its headers. It is a function of its own, as the task of a connection is to a server.
#[inline(never)]
fn call<S, R>(service: &mut S, headers: HeaderMap) -> HeaderMap
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>, Error = Infallible>,
    R: Body<Data = Bytes>,
{
    let mut request = Request::new(Full::new(Bytes::from_static(CHAT)));
    *request.headers_mut() = headers;
    let Ok(response) = now(service.call(black_box(request)));
    assert!(response.status().is_success());
    let (head, body) = response.into_parts();
    let Ok(body) = now(body.collect()) else {
        panic!("the body broke off");
    };
    assert_eq!(body.to_bytes(), CHAT);
    let mut headers = head.headers;
    for of_the_router in ["x-triage-endpoint", "x-triage-model"] {
        headers.remove(of_the_router);
    }
    headers
}
