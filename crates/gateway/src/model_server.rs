//! A small OpenAI-compatible HTTP server with a canned response: what the demo backends are, and what the models of
//! `swap.toml` run.
//!
//! It answers 429 to a request beyond its slots, so a gateway that sends too many is noticed.

use std::convert::Infallible;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use std::vec::IntoIter;

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
use tokio::time::{Instant, sleep};

use crate::args::ModelArgs;
use crate::shutdown::Signals;

const ANSWER: &str = "You are next: a slot of this backend became free.";

/// What a server has and how fast it is.
#[derive(Clone)]
pub(crate) struct ModelServer {
    models: Arc<[String]>,
    slots: Arc<Semaphore>,
    /// When its models are loaded. Until then it refuses requests.
    loaded_at: Instant,
    /// Time per word of a response.
    word_time: Duration,
}

impl ModelServer {
    /// A server with its models loaded, and a response time of 400 ms.
    pub(crate) fn new(models: impl IntoIterator<Item = impl Into<String>>, slots: u32) -> Self {
        Self {
            models: models.into_iter().map(Into::into).collect(),
            slots: Arc::new(Semaphore::new(slots as usize)),
            loaded_at: Instant::now(),
            word_time: word_time(Duration::from_millis(400)),
        }
    }

    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/v1/chat/completions", post(chat))
            .route("/v1/completions", post(completion))
            .route("/v1/embeddings", post(embedding))
            .route("/v1/models", get(list))
            .route("/health", get(health))
            .with_state(self)
    }

    /// Takes a slot for the model that `request` names.
    fn admit(&self, request: &Value) -> Result<(String, OwnedSemaphorePermit), Refused> {
        self.loaded()?;
        let model = request["model"].as_str().unwrap_or_default();
        if !self.models.iter().any(|name| name == model) {
            return Err(Refused::UnknownModel);
        }
        let slot = self.slots.clone().try_acquire_owned();
        slot.map(|slot| (model.to_owned(), slot))
            .map_err(|_| Refused::Overloaded)
    }

    fn loaded(&self) -> Result<(), Refused> {
        match Instant::now() < self.loaded_at {
            true => Err(Refused::Loading),
            false => Ok(()),
        }
    }

    async fn think(&self) {
        sleep(self.word_time * words() as u32).await;
    }
}

/// Serves one model until SIGTERM or Ctrl-C, and then until its last response is sent.
pub(crate) async fn run(args: ModelArgs) -> std::io::Result<()> {
    let mut signals = Signals::register()?;
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await?;
    let (name, addr, load) = (&args.name, listener.local_addr()?, args.load);
    // Fails if the output is closed, which is no reason not to serve.
    _ = writeln!(
        std::io::stdout(),
        "{name} listens on http://{addr} and loads for {load:?}"
    );
    let server = ModelServer {
        loaded_at: Instant::now() + load,
        word_time: word_time(args.answer),
        ..ModelServer::new([name], args.slots)
    };
    axum::serve(listener, server.router())
        .with_graceful_shutdown(async move { signals.any().await })
        .await
}

fn words() -> usize {
    ANSWER.split(' ').count()
}

fn word_time(answer: Duration) -> Duration {
    answer / words() as u32
}

/// Parses a body as JSON, whatever its content type, because `curl -d` does not set it.
fn read(body: &[u8]) -> Result<Value, Refused> {
    serde_json::from_slice(body).map_err(|_| Refused::Malformed)
}

enum Refused {
    Loading,
    Malformed,
    UnknownModel,
    Overloaded,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, code, message) = match self {
            Self::Loading => (
                StatusCode::SERVICE_UNAVAILABLE,
                "loading",
                "the model is being loaded",
            ),
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

async fn health(State(server): State<ModelServer>) -> Result<&'static str, Refused> {
    server.loaded().map(|()| "ok")
}

async fn chat(State(server): State<ModelServer>, body: Bytes) -> Result<Response, Refused> {
    let request = read(&body)?;
    let (model, slot) = server.admit(&request)?;
    if request["stream"] == true {
        return Ok(stream_chat(model, slot, server.word_time));
    }
    server.think().await;
    let message = json!({ "role": "assistant", "content": ANSWER });
    Ok(Json(json!({
        "id": "chatcmpl-demo", "object": "chat.completion", "created": 0, "model": model,
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        "usage": usage(),
    }))
    .into_response())
}

/// Streams the response word by word. The slot is held until the last word is sent or the client disconnects.
fn stream_chat(model: String, slot: OwnedSemaphorePermit, word_time: Duration) -> Response {
    let words = ANSWER
        .split_inclusive(' ')
        .map(|word| chunk(&model, json!({ "content": word }), None));
    let end = [chunk(&model, json!({}), Some("stop")), "[DONE]".to_owned()];
    let chunks: Vec<String> = words.chain(end).collect();
    let next = move |(mut chunks, slot): (IntoIter<String>, _)| async move {
        let data = chunks.next()?;
        sleep(word_time).await;
        let event = Event::default().data(data);
        Some((Ok::<_, Infallible>(event), (chunks, slot)))
    };
    Sse::new(stream::unfold((chunks.into_iter(), slot), next)).into_response()
}

fn chunk(model: &str, delta: Value, finish_reason: Option<&str>) -> String {
    json!({
        "id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 0, "model": model,
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish_reason }],
    })
    .to_string()
}

async fn completion(State(server): State<ModelServer>, body: Bytes) -> Result<Response, Refused> {
    let request = read(&body)?;
    let (model, _slot) = server.admit(&request)?;
    server.think().await;
    Ok(Json(json!({
        "id": "cmpl-demo", "object": "text_completion", "created": 0, "model": model,
        "choices": [{ "index": 0, "text": ANSWER, "logprobs": null, "finish_reason": "stop" }],
        "usage": usage(),
    }))
    .into_response())
}

async fn embedding(State(server): State<ModelServer>, body: Bytes) -> Result<Response, Refused> {
    let request = read(&body)?;
    let (model, _slot) = server.admit(&request)?;
    server.think().await;
    let inputs = request["input"].as_array().map_or(1, Vec::len);
    let data: Vec<Value> = (0..inputs)
        .map(|index| json!({ "object": "embedding", "index": index, "embedding": [0.6, 0.0, 0.8] }))
        .collect();
    let list = json!({ "object": "list", "model": model, "data": data, "usage": usage() });
    Ok(Json(list).into_response())
}

async fn list(State(server): State<ModelServer>) -> Json<Value> {
    Json(crate::pages::list_models(&*server.models))
}

fn usage() -> Value {
    json!({ "prompt_tokens": 1, "completion_tokens": 10, "total_tokens": 11 })
}
