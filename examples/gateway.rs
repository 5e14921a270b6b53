//! A small gateway for LLMs: one address in front of three backends, which routes each request to a backend with its model.
//!
//! ```sh
//! cargo run --example gateway --features client
//! ```
//!
//! It prints requests to try. The program `triage-gateway` (`crates/gateway`) is the whole of it: a configuration file, tenants,
//! models on demand, stored requests, an operator's page.

use std::error::Error;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::{StatusCode, Uri};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_triage::endpoints::{Endpoint, HealthCheck, Model, Registry};
use tower_triage::route::{RouteBody, RoutingConfig, StrategyChoice};
use tower_triage::upstream::{Forward, PeerAddr};
use tower_triage::{QueueConfig, RouteLayer};

/// The requests that each backend serves at a time. Others wait at the gateway, in the order of their priority.
const SLOTS: u32 = 2;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The endpoints: who serves which models, and how many requests at a time.
    let registry = Registry::new(vec![
        backend("gpu-1", &["llama3:8b", "llama3:70b"]).await?,
        backend("gpu-2", &["llama3:8b"]).await?,
        backend("gpu-3", &["mistral:7b"]).await?,
    ])?;

    // A name that clients use for a model, and what may serve a request if no endpoint has its model.
    let routing = RoutingConfig::default()
        .strategy(StrategyChoice::LeastLoaded)
        .alias("gpt-4", "llama3:70b")
        .fallbacks("llama3:405b", ["llama3:70b", "mistral:7b"]);

    // The waiting room: 100 requests wait for at most 30 s. The others are refused at once, with a `Retry-After`.
    let queue = QueueConfig::default()
        .max_size(100)
        .max_wait(Duration::from_secs(30));

    let layer = RouteLayer::builder(registry)
        .queue(queue)
        .routing(routing)
        .build();
    let handle = layer.handle();

    // `Forward` sends each request to the endpoint that was chosen for it, and streams the answer.
    let forward = Forward::<RouteBody<Body>>::new();

    // The health checks run while `checks` lives. An endpoint that fails them gets no requests until it recovers.
    let checks = forward.checks(&handle);
    checks.first_results().await;

    // A response holds its slot until its body has ended.
    let router = ServiceBuilder::new()
        .map_request(with_peer)
        .layer(layer)
        .service(forward);
    let app = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route_service("/v1/{*path}", router);

    let listener = TcpListener::bind(("127.0.0.1", 8080)).await?;
    print_commands(listener.local_addr()?);
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            _ = tokio::signal::ctrl_c().await;
            handle.close(); // those that wait are rejected at once, those that run finish
        })
        .await?;
    Ok(())
}

/// Tells `Forward` the client's address, for `x-forwarded-for`.
fn with_peer(mut request: Request) -> Request {
    if let Some(ConnectInfo(peer)) = request.extensions().get().copied() {
        request.extensions_mut().insert(PeerAddr(peer));
    }
    request
}

/// Starts a backend, and returns it as an endpoint.
async fn backend(name: &'static str, models: &[&str]) -> Result<Endpoint, Box<dyn Error>> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url: Uri = format!("http://{}", listener.local_addr()?).parse()?;
    let app = Router::new()
        .route("/health", get(|| async { StatusCode::OK }))
        .route(
            "/v1/chat/completions",
            post(move |body| complete(name, body)),
        );
    tokio::spawn(axum::serve(listener, app).into_future());
    let endpoint = Endpoint::new(name, url)
        .max_concurrent(SLOTS)
        .health(HealthCheck::default());
    Ok(models.iter().fold(endpoint, |endpoint, &model| {
        endpoint.model(Model::new(model))
    }))
}

/// A chat completion, after a second.
async fn complete(backend: &str, Json(request): Json<Value>) -> Json<Value> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let message = json!({ "role": "assistant", "content": format!("{backend} says hello.") });
    let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
    Json(json!({
        "object": "chat.completion",
        "model": request["model"],
        "choices": [choice],
        "usage": { "prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8 },
    }))
}

fn print_commands(addr: SocketAddr) {
    let curl = format!("curl -s http://{addr}/v1/chat/completions");
    let body = |model: &str| format!(r#"'{{"model":"{model}","messages":[]}}'"#);
    let (large, alias, missing) = (body("llama3:70b"), body("gpt-4"), body("llama3:405b"));
    println!(
        r"A gateway with three backends. Things to try in another terminal:

  # a request for a model that gpu-1 alone has
  {curl} -d {large}

  # an alias, and a model that no backend has but that has a fallback: see x-triage-model and x-triage-endpoint
  {curl} -o /dev/null -D - -d {alias}
  {curl} -o /dev/null -D - -d {missing}

  # 20 requests at once, and an urgent one that comes last and overtakes them (soon after, a part of the same crowd is
  # refused: it would wait too long)
  (seq 20 | xargs -P 20 -I@ {curl} -o /dev/null -w 'normal %{{http_code}} after %{{time_total}} s\n' -d {large} &
   sleep 0.3; {curl} -o /dev/null -w 'HIGH   %{{http_code}} after %{{time_total}} s\n' -H 'x-priority: high' -d {large}; wait)"
    );
}
