//! Tests of the metrics under OpenTelemetry's names, of the ages of waiters, and of the models' loads on `/metrics`.

use std::collections::HashMap;

use http::Response;
use serde_json::json;

use crate::backend::Backend;
use crate::metrics::{assert_samples, scrape};
use crate::process::Setup;
#[cfg(unix)]
use crate::swap_support::{model, ready, swap};

const USAGE: &str = r#"{"usage":{"prompt_tokens":7,"completion_tokens":12}}"#;

fn names<'a>(samples: &'a HashMap<String, f64>, prefix: &str) -> Vec<&'a String> {
    let names = samples.keys();
    names.filter(|name| name.starts_with(prefix)).collect()
}

fn json_answer(text: &str) -> Response<String> {
    let response = Response::builder().header("content-type", "application/json");
    response.body(text.to_owned()).unwrap()
}

#[tokio::test]
async fn durations_are_labelled_by_method_status_and_known_path() {
    let backend = Backend::replying("fine").await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    gateway.ask("m").answer().await.assert_ok("fine");
    gateway.ask("gpt-5").answer().await;
    gateway.get("/healthz").answer().await;
    gateway.get("/made/up/by-a-client").answer().await;
    gateway.idle().await;
    let samples = scrape(&gateway).await;
    let count = |labels: &str| format!("http_server_request_duration_seconds_count{{{labels}}}");
    let of_chat = |status: u16| {
        count(&format!(
            "http_request_method=\"POST\",http_response_status_code=\"{status}\",http_route=\"/v1/chat/completions\""
        ))
    };
    let health =
        "http_request_method=\"GET\",http_response_status_code=\"200\",http_route=\"/healthz\"";
    let unknown = "http_request_method=\"GET\",http_response_status_code=\"404\"";
    assert_samples(
        &samples,
        &[
            (&of_chat(200), 1.0),
            (&of_chat(404), 1.0),
            (&count(health), 1.0),
            (&count(unknown), 1.0),
        ],
    );
    let buckets = names(&samples, "http_server_request_duration_seconds_bucket");
    let buckets = buckets.iter().filter(|name| name.contains("/healthz"));
    assert_eq!(buckets.count(), 15, "OpenTelemetry's 14 and +Inf");
    let version = format!(
        "triage_build_info{{version=\"{}\"}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_samples(&samples, &[(&version, 1.0)]);
}

#[tokio::test]
async fn a_streamed_answer_has_times_of_tokens_and_its_usage() {
    let backend = Backend::start().await;
    let gateway = Setup::new()
        .routing("aliases = { gpt = \"m\" }")
        .backend("gpu-1", &backend, 1, &["m"])
        .start()
        .await;
    let sent = gateway.ask("gpt").send();
    let stream = backend.next().await.stream();
    for event in [
        ": processing\n\n",
        "data: {\"a\":1}\n\n",
        "data: {\"a\":2}\n\n",
    ] {
        stream.send(event);
    }
    stream.send(&format!("data: {USAGE}\n\ndata: [DONE]\n\n"));
    stream.end();
    assert_eq!(sent.answer().await.status, 200);
    gateway.idle().await;
    let samples = scrape(&gateway).await;
    let of = |name: &str| format!("gen_ai_{name}{{gen_ai_request_model=\"m\"}}");
    let usage = |part: &str, kind: &str| {
        let labels = format!("gen_ai_request_model=\"m\",gen_ai_token_type=\"{kind}\"");
        format!("gen_ai_client_token_usage_{part}{{{labels}}}")
    };
    assert_samples(
        &samples,
        &[
            (&of("server_time_to_first_token_seconds_count"), 1.0),
            (&of("server_time_per_output_token_seconds_count"), 1.0),
            (&usage("count", "input"), 1.0),
            (&usage("sum", "input"), 7.0),
            (&usage("sum", "output"), 12.0),
        ],
    );
    assert!(samples[&of("server_time_to_first_token_seconds_sum")] > 0.0);
}

#[tokio::test]
async fn an_answer_in_one_piece_has_its_usage_and_no_times_of_tokens() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    for text in [USAGE, r#"{"choices":[{"text":"without a usage"}]}"#] {
        let sent = gateway.ask("m").send();
        backend.next().await.respond(json_answer(text));
        sent.answer().await.assert_ok(text);
    }
    let sent = gateway.ask("m").send();
    backend
        .next()
        .await
        .respond(Response::builder().status(500).body(USAGE).unwrap());
    assert_eq!(sent.answer().await.status, 500);
    gateway.idle().await;
    let samples = scrape(&gateway).await;
    let usage = |part: &str, kind: &str| {
        let labels = format!("gen_ai_request_model=\"m\",gen_ai_token_type=\"{kind}\"");
        format!("gen_ai_client_token_usage_{part}{{{labels}}}")
    };
    let first = "gen_ai_server_time_to_first_token_seconds_count{gen_ai_request_model=\"m\"}";
    assert_samples(
        &samples,
        &[
            (&usage("count", "input"), 1.0),
            (&usage("count", "output"), 1.0),
            (&usage("sum", "output"), 12.0),
            (first, 0.0),
        ],
    );
}

#[tokio::test]
async fn the_age_of_the_oldest_waiter_is_a_gauge_of_each_level() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let first = gateway.ask("m").send();
    let arrived = backend.next().await;
    let second = gateway.ask("m").high().send();
    gateway.depth(1).await;
    let oldest = |level: &str| format!("triage_queue_oldest_seconds{{priority=\"{level}\"}}");
    let samples = scrape(&gateway).await;
    assert!(samples[&oldest("high")] > 0.0, "{samples:#?}");
    assert_samples(&samples, &[(&oldest("normal"), 0.0)]);
    arrived.answer("first");
    backend.next().await.answer("second");
    first.answer().await.assert_ok("first");
    second.answer().await.assert_ok("second");
    assert_samples(&scrape(&gateway).await, &[(&oldest("high"), 0.0)]);
}

#[tokio::test]
async fn the_trace_context_of_a_client_reaches_the_backend() {
    let backend = Backend::start().await;
    let setup = Setup::new().backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let ask = gateway.ask("m").header("traceparent", parent);
    let sent = ask.header("tracestate", "vendor=1").send();
    let arrived = backend.next().await;
    assert_eq!(arrived.header("traceparent"), Some(parent));
    assert_eq!(arrived.header("tracestate"), Some("vendor=1"));
    arrived.answer("fine");
    sent.answer().await.assert_ok("fine");
}

#[cfg(unix)]
#[tokio::test]
async fn loads_and_unloads_of_models_are_counted_with_their_states() {
    let setup = swap("memory = 1.0")
        .sections(&model("a", &ready("a")))
        .sections(&model("b", &ready("b")))
        .sections(&model("bad", "false"));
    let gateway = setup.start().await;
    for name in ["a", "b"] {
        assert_eq!(gateway.ask(name).answer().await.status, 200);
    }
    let failed = gateway.ask("bad").answer().await;
    failed.assert_error(503, "model_start_failed");
    let page = gateway.admin().get("/metrics").answer().await;
    let samples = crate::metrics::samples(page.text());
    let loads = |name: &str, outcome: &str| {
        format!("triage_model_loads_total{{model=\"{name}\",outcome=\"{outcome}\"}}")
    };
    let state = |name: &str, state: &str| {
        format!("triage_model_state{{model=\"{name}\",state=\"{state}\"}}")
    };
    assert_samples(
        &samples,
        &[
            (&loads("a", "ok"), 1.0),
            (&loads("b", "ok"), 1.0),
            (&loads("bad", "failed"), 1.0),
            ("triage_model_load_seconds_count{model=\"a\"}", 1.0),
            ("triage_model_unloads_total{model=\"a\"}", 1.0),
            (&state("a", "unloaded"), 1.0),
            (&state("a", "loaded"), 0.0),
            (&state("bad", "failed"), 1.0),
            // A model that does not run is not broken.
            ("triage_endpoint_healthy{endpoint=\"a\"}", 1.0),
        ],
    );
    let models = gateway.admin().get("/admin/models").answer().await.json();
    assert_eq!(models["models"][0]["name"], json!("a"));
}
