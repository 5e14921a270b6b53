//! Tests of the page `/metrics`.

use std::collections::{HashMap, HashSet};

use crate::backend::{Backend, status};
use crate::pages::full;
use crate::process::{Gateway, Setup};

/// The samples of `/metrics`, by name and labels in Prometheus' notation.
pub(crate) async fn scrape(gateway: &Gateway) -> HashMap<String, f64> {
    let answer = gateway.get("/metrics").answer().await;
    let content_type = answer.header("content-type").unwrap();
    assert!(content_type.starts_with("text/plain"), "{content_type}");
    samples(answer.text())
}

#[track_caller]
pub(crate) fn assert_samples(samples: &HashMap<String, f64>, expected: &[(&str, f64)]) {
    for &(sample, value) in expected {
        assert_eq!(samples.get(sample), Some(&value), "{sample}\n{samples:#?}");
    }
}

#[tokio::test]
async fn gauges_match_state_and_rejections_count_by_code() {
    let (gateway, _busy) = full("").await;
    gateway
        .ask("m")
        .answer()
        .await
        .assert_error(503, "queue_full");
    for made_up in ["gpt-5", "gpt-6"] {
        let answer = gateway.ask(made_up).answer().await;
        answer.assert_error(404, "model_not_found");
    }
    assert_samples(
        &scrape(&gateway).await,
        &[
            ("triage_queue_depth", 1.0),
            ("triage_running", 1.0),
            ("triage_endpoint_in_flight{endpoint=\"gpu-1\"}", 1.0),
            ("triage_endpoint_limit{endpoint=\"gpu-1\"}", 1.0),
            ("triage_endpoint_healthy{endpoint=\"gpu-1\"}", 1.0),
            ("triage_served_total", 1.0),
            ("triage_cancelled_total", 0.0),
            ("triage_rejected_total{code=\"queue_full\"}", 1.0),
            ("triage_rejected_total{code=\"model_not_found\"}", 2.0),
            ("triage_responses_total{status=\"503\"}", 1.0),
            (
                "triage_requests_total{endpoint=\"none\",model=\"m\",outcome=\"queue_full\"}",
                1.0,
            ),
            (
                "triage_requests_total{endpoint=\"none\",model=\"other\",outcome=\"model_not_found\"}",
                2.0,
            ),
        ],
    );
}

#[tokio::test]
async fn queue_wait_histogram_is_labelled_by_priority() {
    let backend = Backend::start().await;
    let gateway = Setup::new()
        .backend("gpu-1", &backend, 1, &["m"])
        .start()
        .await;
    let first = gateway.ask("m").send();
    let arrived = backend.next().await;
    let second = gateway.ask("m").high().send();
    gateway.depth(1).await;
    arrived.answer("first");
    backend.next().await.answer("second");
    first.answer().await.assert_ok("first");
    second.answer().await.assert_ok("second");
    gateway.idle().await;
    let samples = scrape(&gateway).await;
    assert_samples(
        &samples,
        &[
            (
                "triage_queue_wait_seconds_bucket{priority=\"high\",le=\"+Inf\"}",
                1.0,
            ),
            ("triage_queue_wait_seconds_count{priority=\"high\"}", 1.0),
            (
                "triage_requests_total{endpoint=\"gpu-1\",model=\"m\",outcome=\"ok\"}",
                2.0,
            ),
        ],
    );
    assert!(samples["triage_queue_wait_seconds_sum{priority=\"high\"}"] > 0.0);
    assert!(!samples.contains_key("triage_queue_wait_seconds_count{priority=\"normal\"}"));
}

#[tokio::test]
async fn retried_request_counts_at_the_endpoint_that_answered() {
    let (one, two) = (Backend::start().await, Backend::start().await);
    let gateway = Setup::new()
        .backend("gpu-1", &one, 1, &["m"])
        .backend("gpu-2", &two, 1, &["m"])
        .start()
        .await;
    let sent = gateway.ask("m").send();
    let (failed, at) = tokio::select! {
        arrived = one.next() => (arrived, 1),
        arrived = two.next() => (arrived, 2),
    };
    failed.respond(status(503));
    let (other, backend) = if at == 1 { (2, &two) } else { (1, &one) };
    backend.next().await.answer("ok");
    sent.answer().await.assert_ok("ok");
    gateway.idle().await;
    let samples = scrape(&gateway).await;
    assert_samples(
        &samples,
        &[
            (
                &format!("triage_retries_total{{endpoint=\"gpu-{at}\"}}"),
                1.0,
            ),
            (
                &format!(
                    "triage_requests_total{{endpoint=\"gpu-{other}\",model=\"m\",outcome=\"ok\"}}"
                ),
                1.0,
            ),
        ],
    );
    let requests = samples.iter();
    let requests = requests.filter(|(name, _)| name.starts_with("triage_requests_total"));
    assert_eq!(requests.count(), 1, "{samples:#?}");
}

#[tokio::test]
async fn metrics_label_aliases_and_fallbacks_with_served_model() {
    let backend = Backend::start().await;
    let gateway = Setup::new()
        .routing("aliases = { gpt = \"m\" }\nfallbacks = { none = [\"m\"] }")
        .backend("gpu-1", &backend, 1, &["m"])
        .start()
        .await;
    for asked in ["gpt", "none"] {
        let sent = gateway.ask(asked).send();
        backend.next().await.answer("ok");
        sent.answer().await.assert_ok("ok");
    }
    gateway.idle().await;
    assert_samples(
        &scrape(&gateway).await,
        &[
            (
                "triage_requests_total{endpoint=\"gpu-1\",model=\"m\",outcome=\"ok\"}",
                2.0,
            ),
            ("triage_fallbacks_total{asked=\"none\",model=\"m\"}", 1.0),
        ],
    );
}

/// Parses Prometheus' text format, and asserts that it is valid.
pub(crate) fn samples(text: &str) -> HashMap<String, f64> {
    assert!(text.ends_with('\n'));
    let mut families = HashSet::new();
    let (mut family, mut kind) = ("", "");
    let mut samples = HashMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (of, help) = help.split_once(' ').unwrap();
            assert!(families.insert(of) && !help.is_empty(), "{line}");
            family = of;
        } else if let Some(of) = line.strip_prefix("# TYPE ") {
            // Every metric of the gateway has its HELP line before its TYPE line.
            let (of, what) = of.split_once(' ').unwrap();
            assert!(is_name(of) && of == family, "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&what), "{line}");
            kind = what;
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (of, labels) = sample.split_once('{').unwrap_or((sample, "}"));
            let suffix = of.strip_prefix(family).expect(line);
            let suffixes: &[&str] = match kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{line}");
            let labels = labels.strip_suffix('}').expect(line);
            for label in labels.split(',').filter(|label| !label.is_empty()) {
                let (label, quoted) = label.split_once('=').expect(line);
                assert!(is_name(label) && quoted.len() > 1, "{line}");
                assert!(quoted.starts_with('"') && quoted.ends_with('"'), "{line}");
            }
            let value = value.parse().expect(line);
            assert!(samples.insert(sample.to_owned(), value).is_none(), "{line}");
        }
    }
    samples
}

fn is_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    !name.is_empty() && name.chars().all(word) && !name.starts_with(|c: char| c.is_ascii_digit())
}
