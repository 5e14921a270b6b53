//! Tests of the observer that a layer in front of the router gives to a request.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use http::Request;
use http_body_util::{BodyExt, Full};
use tower_triage::endpoints::Decision;
use tower_triage::route::{FairBy, RouteObserver, RoutingConfig};
use tower_triage::{Discipline, QueueConfig, Ticket};

use crate::support::{Answer, TestRouter, endpoint, settle, status, two};

/// Keeps what it is told, one word each.
#[derive(Default)]
struct Words {
    wants_ticket: bool,
    said: Mutex<Vec<String>>,
}

impl Words {
    fn wanting_tickets() -> Arc<Self> {
        Arc::new(Self {
            wants_ticket: true,
            ..Self::default()
        })
    }

    fn push(&self, word: String) {
        self.said.lock().unwrap().push(word);
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().join(" ")
    }
}

impl RouteObserver for Words {
    fn wants_ticket(&self) -> bool {
        self.wants_ticket
    }

    fn on_asked(&self, model: &Arc<str>) {
        self.push(format!("asked:{model}"));
    }

    fn on_ticket(&self, ticket: &Ticket, level: &str) {
        self.push(format!("{level}:{}", ticket.tenant));
    }

    fn on_queued(&self, _: Instant) {
        self.push("queued".to_owned());
    }

    fn on_called(&self, decision: &Decision, _: Instant) {
        self.push(format!("called:{}", decision.endpoint.name()));
    }

    fn on_answered(&self, _: Instant) {
        self.push("answered".to_owned());
    }

    fn on_tokens(&self, prompt: Option<u64>, output: u64) {
        self.push(format!("{}+{output}", prompt.unwrap_or(0)));
    }
}

fn observed(model: &str, words: &Arc<Words>) -> Request<Full<bytes::Bytes>> {
    let observer: Arc<dyn RouteObserver> = words.clone();
    let body = serde_json::json!({ "model": model }).to_string();
    let mut request = Request::new(Full::from(body));
    request.extensions_mut().insert(observer);
    let headers = request.headers_mut();
    headers.insert("x-tenant-id", "team-a".parse().unwrap());
    headers.insert("x-priority", "high".parse().unwrap());
    request
}

#[tokio::test(start_paused = true)]
async fn a_request_that_finds_a_slot_is_asked_called_and_answered() {
    let mut router = two();
    let words = Arc::new(Words::default());
    let sent = router.send(observed("m", &words));
    let call = router.call().await;
    let called = format!("called:{}", call.endpoint());
    assert_eq!(words.said(), format!("asked:m {called}"));
    call.ok();
    sent.await.unwrap();
    assert_eq!(words.said(), format!("asked:m {called} answered"));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_tells_its_level_and_tenant_while_it_waits() {
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    let first = router.ask("m");
    let running = router.call().await;
    let words = Arc::new(Words::default());
    let sent = router.send(observed("m", &words));
    settle().await;
    assert_eq!(words.said(), "asked:m high:team-a queued");
    running.ok();
    first.await.unwrap().into_body().collect().await.unwrap();
    router.call().await.ok();
    sent.await.unwrap();
    let all = "asked:m high:team-a queued called:a answered";
    assert_eq!(words.said(), all);
}

#[tokio::test(start_paused = true)]
async fn each_try_is_a_call() {
    let mut router = two();
    let words = Arc::new(Words::default());
    let sent = router.send(observed("m", &words));
    let failed = router.call().await;
    let first = failed.endpoint().to_owned();
    failed.answer(status(503));
    let second = router.call().await;
    assert_ne!(second.endpoint(), first);
    let second_name = second.endpoint().to_owned();
    second.ok();
    sent.await.unwrap();
    let tries = format!("called:{first} answered called:{second_name} answered");
    assert_eq!(words.said(), format!("asked:m {tries}"));
}

#[tokio::test(start_paused = true)]
async fn a_wanted_ticket_is_told_even_for_a_rejection() {
    let mut router = two();
    let words = Words::wanting_tickets();
    router.send(observed("gpt-5", &words)).await.unwrap();
    assert_eq!(words.said(), "high:team-a asked:gpt-5 high:team-a queued");
    let words = Words::wanting_tickets();
    let sent = router.send(observed("m", &words));
    router.call().await.ok();
    sent.await.unwrap();
    assert!(words.said().starts_with("high:team-a asked:m called:"));
}

#[tokio::test(start_paused = true)]
async fn tokens_are_told_where_tenants_are_charged_for_them() {
    let mut routing = RoutingConfig::default();
    routing.fair_by = FairBy::Tokens;
    let queue = QueueConfig::default().discipline(Discipline::Fair);
    let mut router = TestRouter::with_queue([endpoint("a", 1, &["m"])], routing, queue);
    let words = Arc::new(Words::default());
    let sent = router.send(observed("m", &words));
    let usage = r#"{"usage":{"prompt_tokens":7,"completion_tokens":12}}"#;
    router.call().await.answer(Answer::new(usage.into()));
    sent.await.unwrap().into_body().collect().await.unwrap();
    assert!(words.said().ends_with("7+12"), "{}", words.said());
}

#[tokio::test(start_paused = true)]
async fn tokens_are_bounded_by_the_body_that_the_endpoint_gets() {
    let queue = QueueConfig::default().discipline(Discipline::Fair);
    let mut bounded = endpoint("a", 1, &["m"]);
    bounded.models[0] = bounded.models[0].clone().strip_params(["max_tokens"]);
    let mut router = TestRouter::with_queue([bounded], RoutingConfig::default(), queue);
    let words = Arc::new(Words::default());
    let mut request = observed("m", &words);
    *request.body_mut() = r#"{"max_tokens":1,"model":"m"}"#.into();
    let sent = router.send(request);
    let call = router.call().await;
    assert_eq!(call.body, r#"{"model":"m"}"#);
    let usage = r#"{"usage":{"prompt_tokens":7,"completion_tokens":900}}"#;
    call.answer(Answer::new(usage.into()));
    sent.await.unwrap().into_body().collect().await.unwrap();
    assert!(words.said().ends_with("7+900"), "{}", words.said());
}
