//! The gateway in front of its demo backends, over real sockets.

use std::net::SocketAddr;

use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode};
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use super::*;
use service::Handle;

mod half_requests;
mod http2_hosts;

/// A running gateway and a client of it.
struct Running {
    _server: Server,
    handle: Handle,
    url: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

struct Answer {
    status: StatusCode,
    endpoint: Option<String>,
    model: Option<String>,
    text: String,
}

impl Running {
    async fn start() -> Self {
        let registry = Registry::new(demo::start().await.unwrap()).unwrap();
        let config = Config::without_file(registry, demo::routing(), |_| None).unwrap();
        let services = service::services(&config).unwrap();
        let handle = services.handle.clone();
        let pages = Pages::new(
            handle.clone(),
            None,
            reload::channel(false).0,
            Live::default(),
            AnswerMemory::new(64 << 20),
        );
        let (listeners, addr) = listen(([127, 0, 0, 1], 0).into(), 2).unwrap();
        let url = format!("http://{addr}");
        let server = Server::new(&config.server, 100, &pages, None);
        Self {
            _server: start_main(server, listeners, &config, &services, &pages).unwrap(),
            handle,
            url,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> Answer {
        let url = format!("{}{path}", self.url);
        let request = Request::builder().method(method).uri(url);
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let response = self.client.request(request).await.unwrap();
        let header = |name| {
            let value = response.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        Answer {
            status: response.status(),
            endpoint: header("x-triage-endpoint"),
            model: header("x-triage-model"),
            text: String::from_utf8(
                response
                    .into_body()
                    .collect()
                    .await
                    .unwrap()
                    .to_bytes()
                    .into(),
            )
            .unwrap(),
        }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, "").await
    }

    async fn post(&self, path: &str, body: &str) -> Answer {
        self.ask(Method::POST, path, body).await
    }
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    fn code(&self) -> (u16, String) {
        (
            self.status.as_u16(),
            self.json()["error"]["code"].as_str().unwrap().to_owned(),
        )
    }
}

/// Starts a gateway's admin address, without a token.
async fn start_admin_address() -> (SocketAddr, Server) {
    let registry = Registry::new(Vec::new()).unwrap();
    let config = Config::without_file(registry, demo::routing(), |_| None).unwrap();
    let handle = service::services(&config).unwrap().handle;
    let memory = AnswerMemory::new(64 << 20);
    let pages = Pages::new(
        handle,
        None,
        reload::channel(false).0,
        Live::default(),
        memory,
    );
    let (listeners, addr) = listen(([127, 0, 0, 1], 0).into(), 1).unwrap();
    (addr, start_admin(listeners, &config, pages, None).unwrap())
}

#[tokio::test]
async fn chat_completion_and_embedding_requests_reach_their_models() {
    let gateway = Running::start().await;
    let (chat, completion, embedding) = tokio::join!(
        gateway.post("/v1/chat/completions", r#"{"model":"llama3:70b"}"#),
        gateway.post("/v1/completions", r#"{"model":"llama3:8b"}"#),
        gateway.post(
            "/v1/embeddings",
            r#"{"model":"mistral:7b","input":["a","b"]}"#
        ),
    );
    assert_eq!(chat.json()["choices"][0]["message"]["role"], "assistant");
    assert_eq!(chat.endpoint.as_deref(), Some("demo-1"));
    assert_eq!(completion.json()["model"], "llama3:8b");
    assert_eq!(embedding.json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(embedding.endpoint.as_deref(), Some("demo-3"));
    let streamed = gateway
        .post(
            "/v1/chat/completions",
            r#"{"model":"llama3:70b","stream":true}"#,
        )
        .await;
    assert!(streamed.text.starts_with("data: {"), "{}", streamed.text);
    assert!(
        streamed.text.ends_with("data: [DONE]\n\n"),
        "{}",
        streamed.text
    );
}

#[tokio::test]
async fn alias_and_fallback_serve_their_target_models() {
    let gateway = Running::start().await;
    for name in ["gpt-4", "llama3:405b"] {
        let body = format!(r#"{{"model":"{name}"}}"#);
        let answer = gateway.post("/v1/completions", &body).await;
        assert_eq!(answer.json()["model"], "llama3:70b", "{name}");
        assert_eq!(answer.model.as_deref(), Some("llama3:70b"));
    }
}

#[tokio::test]
async fn requests_fill_the_slots_of_every_backend_exactly() {
    let gateway = Running::start().await;
    gateway.handle.mark_all_healthy();
    let ask = || gateway.post("/v1/chat/completions", r#"{"model":"llama3:8b"}"#);
    let answers = join_all((0..4).map(|_| ask())).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    let first = answers
        .iter()
        .filter(|answer| answer.endpoint.as_deref() == Some("demo-1"))
        .count();
    assert_eq!(first, 2);
}

#[tokio::test]
async fn unservable_requests_are_rejected_with_a_code() {
    let gateway = Running::start().await;
    for (body, status, code) in [
        (r#"{"model":"gpt-5"}"#, 404, "model_not_found"),
        (r#"{"model":"#, 400, "malformed_body"),
        ("{}", 400, "model_missing"),
    ] {
        assert_eq!(
            gateway.post("/v1/completions", body).await.code(),
            (status, code.to_owned())
        );
    }
    let large = " ".repeat((10 << 20) + 1);
    assert_eq!(
        gateway.post("/v1/completions", &large).await.code(),
        (413, "body_too_large".to_owned())
    );
    assert_eq!(
        gateway.get("/v1/nothing").await.code(),
        (404, "not_found".to_owned())
    );
}

#[tokio::test]
async fn models_state_and_metrics_pages_show_current_values() {
    let gateway = Running::start().await;
    let models = gateway.get("/v1/models").await.json();
    let names: Vec<_> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| &model["id"])
        .collect();
    assert_eq!(names, ["llama3:8b", "llama3:70b", "mistral:7b", "gpt-4"]);
    gateway
        .post("/v1/completions", r#"{"model":"gpt-5"}"#)
        .await;
    let state = gateway.get("/admin/state").await.json();
    assert_eq!(state["queue"]["rejected"]["model_not_found"], 1);
    assert_eq!(state["endpoints"][0]["name"], "demo-1");
    assert_eq!(state["endpoints"][0]["limit"], 2);
    let metrics = gateway.get("/metrics").await.text;
    assert!(
        metrics.contains("triage_rejected_total{code=\"model_not_found\"} 1\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn closed_gateway_finishes_running_and_rejects_new_requests() {
    let gateway = Running::start().await;
    assert_eq!(gateway.get("/healthz").await.status, StatusCode::OK);
    let body = r#"{"model":"llama3:70b","stream":true}"#;
    let running = gateway.post("/v1/chat/completions", body);
    let others = async {
        while gateway.handle.snapshot().queue.running == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        gateway.handle.close();
        assert_eq!(
            gateway.get("/healthz").await.code(),
            (503, "shutting_down".to_owned())
        );
        let late = gateway.post("/v1/chat/completions", body).await;
        assert_eq!(late.code(), (503, "shutting_down".to_owned()));
        assert_eq!(gateway.handle.snapshot().queue.running, 1);
        gateway.handle.closed().await;
    };
    let (answer, ()) = tokio::join!(running, others);
    assert!(answer.text.ends_with("data: [DONE]\n\n"), "{}", answer.text);
}
