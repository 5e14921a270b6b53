//! Three demo backends on loopback: OpenAI-compatible HTTP servers with a canned response.
//!
//! A response takes about 400 ms. A backend answers 429 to a request beyond its slots, so a gateway that sends too
//! many is noticed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_triage::endpoints::{Endpoint, HealthCheck, Model};
use tower_triage::route::RoutingConfig;

/// Time per word of a response.
const WORD: Duration = Duration::from_millis(40);
const ANSWER: &str = "You are next: a slot of this backend became free.";

struct DemoBackend {
    name: &'static str,
    slots: u32,
    models: &'static [&'static str],
}

const BACKENDS: [DemoBackend; 3] = [
    DemoBackend {
        name: "demo-1",
        slots: 2,
        models: &["llama3:8b", "llama3:70b"],
    },
    DemoBackend {
        name: "demo-2",
        slots: 2,
        models: &["llama3:8b"],
    },
    DemoBackend {
        name: "demo-3",
        slots: 2,
        models: &["mistral:7b"],
    },
];

/// Starts the demo backends and returns their endpoints.
pub(crate) async fn start() -> std::io::Result<Vec<Endpoint>> {
    let mut endpoints = Vec::new();
    for DemoBackend {
        name,
        slots,
        models,
    } in BACKENDS
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?)
            .parse()
            .map_err(std::io::Error::other)?;
        tokio::spawn(axum::serve(listener, backend(slots, models)).into_future());
        let endpoint = Endpoint::new(name, url)
            .max_concurrent(slots)
            .health(HealthCheck::default());
        endpoints.push(models.iter().fold(endpoint, |endpoint, &model| {
            endpoint.model(Model::new(model))
        }));
    }
    Ok(endpoints)
}

/// An alias and a fallback chain for the demo backends.
pub(crate) fn routing() -> RoutingConfig {
    RoutingConfig::default()
        .alias("gpt-4", "llama3:70b")
        .fallbacks("llama3:405b", ["llama3:70b", "mistral:7b"])
}

#[derive(Clone)]
struct Backend {
    slots: Arc<Semaphore>,
    models: &'static [&'static str],
}

fn backend(slots: u32, models: &'static [&'static str]) -> Router {
    let slots = Arc::new(Semaphore::new(slots as usize));
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .route("/v1/embeddings", post(embedding))
        .route("/v1/models", get(list))
        .route("/health", get(async || "ok"))
        .with_state(Backend { slots, models })
}

impl Backend {
    /// Takes a slot for the model that `request` names.
    fn admit(&self, request: &Value) -> Result<(String, OwnedSemaphorePermit), Refused> {
        let model = request["model"].as_str().unwrap_or_default();
        if !self.models.contains(&model) {
            return Err(Refused::UnknownModel);
        }
        let slot = self.slots.clone().try_acquire_owned();
        slot.map(|slot| (model.to_owned(), slot))
            .map_err(|_| Refused::Overloaded)
    }
}

/// Parses a body as JSON, whatever its content type, because `curl -d` does not set it.
fn read(body: &[u8]) -> Result<Value, Refused> {
    serde_json::from_slice(body).map_err(|_| Refused::Malformed)
}

enum Refused {
    Malformed,
    UnknownModel,
    Overloaded,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, code, message) = match self {
            Self::Malformed => (
                StatusCode::BAD_REQUEST,
                "malformed_body",
                "the body is not valid JSON",
            ),
            Self::UnknownModel => (
                StatusCode::NOT_FOUND,
                "model_not_found",
                "this backend does not have the model",
            ),
            Self::Overloaded => (
                StatusCode::TOO_MANY_REQUESTS,
                "overloaded",
                "all slots of this backend are busy",
            ),
        };
        crate::pages::error(status, code, message.to_owned())
    }
}

async fn chat(State(backend): State<Backend>, body: Bytes) -> Result<Response, Refused> {
    let request = read(&body)?;
    let (model, slot) = backend.admit(&request)?;
    if request["stream"] == true {
        return Ok(stream_chat(model, slot));
    }
    think().await;
    let message = json!({ "role": "assistant", "content": ANSWER });
    Ok(Json(json!({
        "id": "chatcmpl-demo", "object": "chat.completion", "created": 0, "model": model,
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        "usage": usage(),
    }))
    .into_response())
}

/// Streams the response word by word. The slot is held until the last word is sent or the client disconnects.
fn stream_chat(model: String, slot: OwnedSemaphorePermit) -> Response {
    let words = ANSWER
        .split_inclusive(' ')
        .map(|word| chunk(&model, json!({ "content": word }), None));
    let end = [chunk(&model, json!({}), Some("stop")), "[DONE]".to_owned()];
    let chunks: Vec<String> = words.chain(end).collect();
    let events = stream::unfold((chunks.into_iter(), slot), async |(mut chunks, slot)| {
        let data = chunks.next()?;
        tokio::time::sleep(WORD).await;
        Some((
            Ok::<_, Infallible>(Event::default().data(data)),
            (chunks, slot),
        ))
    });
    Sse::new(events).into_response()
}

fn chunk(model: &str, delta: Value, finish_reason: Option<&str>) -> String {
    json!({
        "id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 0, "model": model,
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
    })
    .to_string()
}

async fn completion(State(backend): State<Backend>, body: Bytes) -> Result<Response, Refused> {
    let request = read(&body)?;
    let (model, _slot) = backend.admit(&request)?;
    think().await;
    Ok(Json(json!({
        "id": "cmpl-demo", "object": "text_completion", "created": 0, "model": model,
        "choices": [{ "index": 0, "text": ANSWER, "logprobs": null, "finish_reason": "stop" }],
        "usage": usage(),
    }))
    .into_response())
}

async fn embedding(State(backend): State<Backend>, body: Bytes) -> Result<Response, Refused> {
    let request = read(&body)?;
    let (model, _slot) = backend.admit(&request)?;
    think().await;
    let inputs = request["input"].as_array().map_or(1, Vec::len);
    let data: Vec<Value> = (0..inputs)
        .map(|index| json!({ "object": "embedding", "index": index, "embedding": [0.6, 0.0, 0.8] }))
        .collect();
    let list = json!({ "object": "list", "model": model, "data": data, "usage": usage() });
    Ok(Json(list).into_response())
}

async fn list(State(backend): State<Backend>) -> Json<Value> {
    Json(crate::pages::models(backend.models))
}

async fn think() {
    tokio::time::sleep(WORD * ANSWER.split(' ').count() as u32).await;
}

fn usage() -> Value {
    json!({ "prompt_tokens": 1, "completion_tokens": 10, "total_tokens": 11 })
}

/// Commands to try, printed at the start. They are for a POSIX shell with `curl`.
pub(crate) fn commands(gateway: std::net::SocketAddr) -> String {
    let url = format!("http://{gateway}/v1/chat/completions");
    let body = r#"{"model":"llama3:70b","messages":[{"role":"user","content":"Am I next?"}]}"#;
    let streamed = body.replacen('{', r#"{"stream":true,"#, 1);
    let asking = |model| body.replacen("llama3:70b", model, 1);
    let (aliased, fallen_back) = (asking("gpt-4"), asking("llama3:405b"));
    let curl = format!("curl -s {url}");
    format!(
        r#"
Three demo backends are running. Things to try in another terminal:

  # a whole response, and a streamed one
  {curl} -d '{body}'
  {curl} -N -d '{streamed}'

  # 20 requests at once, and a high-priority one that arrives last and overtakes them
  (seq 20 | xargs -P 20 -I@ {curl} -o /dev/null -w 'normal %{{http_code}} after %{{time_total}} s\n' -d '{body}' &
   sleep 0.3; {curl} -o /dev/null -w 'HIGH   %{{http_code}} after %{{time_total}} s\n' -H 'x-priority: high' -d '{body}'; wait)

  # an alias, and a model without a backend that has a fallback: see the header x-triage-model
  {curl} -o /dev/null -D - -d '{aliased}'
  {curl} -o /dev/null -D - -d '{fallen_back}'

  # state, metrics and models
  curl -s http://{gateway}/admin/state
  curl -s http://{gateway}/metrics
  curl -s http://{gateway}/v1/models

Ctrl-C shuts down: waiting requests are rejected at once, running requests finish.
"#
    )
}
