//! The tasks that read the load of engines. Each endpoint with such metrics has one task, which starts and stops as the
//! endpoints change.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::health::{CheckError, Prober, jittered};
use crate::admit::PoolId;
use crate::endpoints::{EndpointRef, EngineLoad};
use crate::route::RouteHandle;

/// The largest part of an engine's metrics that is read, in bytes.
const READ_LIMIT: usize = 4 << 20;

const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the load of the engines of a router's endpoints until the router is gone.
pub(super) async fn read_engines(
    prober: Prober,
    router: RouteHandle,
    mut changed: watch::Receiver<()>,
) {
    let mut running: HashMap<PoolId, (EndpointRef, JoinSet<()>)> = HashMap::new();
    loop {
        let endpoints = router.endpoints();
        // A changed endpoint gets a new task, because its limit may be different.
        running.retain(|_, (endpoint, _)| {
            let is_it = |now: &EndpointRef| is_unchanged(endpoint, now);
            endpoints.iter().any(is_it)
        });
        for endpoint in endpoints.iter().filter(|it| it.config().load.is_some()) {
            running.entry(endpoint.pool()).or_insert_with(|| {
                let task = read(prober.clone(), router.clone(), endpoint.clone());
                let task = JoinSet::from_iter([task]);
                (endpoint.clone(), task)
            });
        }
        if changed.changed().await.is_err() {
            return; // the router is gone
        }
    }
}

fn is_unchanged(one: &EndpointRef, other: &EndpointRef) -> bool {
    one == other && one.config() == other.config()
}

/// Reads the load of one engine repeatedly, until this future is dropped.
async fn read(prober: Prober, router: RouteHandle, endpoint: EndpointRef) {
    let Some(metrics) = &endpoint.config().load else {
        return;
    };
    let mut fails = false;
    loop {
        let pause = sleep(jittered(metrics.interval, fastrand::f64())); // runs from here on
        let reading = reading(&prober, &endpoint, &metrics.path).await;
        let failed = reading.as_ref().err();
        // Only the first failure in a row is logged, and the next one after a success.
        if let Some(error) = failed.filter(|_| !fails) {
            let name = endpoint.name();
            tracing::warn!(endpoint = name, %error, "the load of the endpoint's engine is not known");
        }
        fails = failed.is_some();
        router.engine_said(&endpoint, reading.ok());
        pause.await;
    }
}

async fn reading(
    prober: &Prober,
    endpoint: &EndpointRef,
    path: &str,
) -> Result<EngineLoad, ReadingError> {
    let text = timeout(TIMEOUT, prober.read(endpoint, path, READ_LIMIT));
    let text = text.await.unwrap_or(Err(CheckError::Late(TIMEOUT)))?;
    load(&String::from_utf8_lossy(&text)).ok_or(ReadingError::NoMetrics)
}

/// The reason why the load of an engine is not known.
#[derive(Debug, thiserror::Error)]
enum ReadingError {
    #[error(transparent)]
    NoAnswer(#[from] CheckError),
    #[error("the answer has no metrics of the load of vLLM, SGLang or TGI: is the path right?")]
    NoMetrics,
}

/// The names of the metrics that count the requests waiting inside an engine.
const WAITING: [&str; 3] = [
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
    "tgi_queue_size",
];

/// The names of the metrics that give the used fraction of an engine's cache of keys and values.
const CACHE_USAGE: [&str; 3] = [
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
];

/// Returns the load that the metrics in `text` report, in the format of Prometheus, if it has any of these metrics. Lines in another format, and values that are
/// not numbers, are left out. Waiting requests of several lines are added up, and the fullest cache counts.
pub(crate) fn load(text: &str) -> Option<EngineLoad> {
    let mut load = EngineLoad::default();
    for (name, value) in text.lines().filter_map(metric) {
        if WAITING.contains(&name) {
            *load.waiting.get_or_insert_default() += value;
        } else if CACHE_USAGE.contains(&name) {
            load.cache_usage = Some(load.cache_usage.map_or(value, |usage| usage.max(value)));
        }
    }
    (load != EngineLoad::default()).then_some(load)
}

/// Returns the name of the metric on a line and its value, if the value is finite and at least 0.
///
/// A line is a comment or has the form `name {labels} value timestamp`, in which the labels and the timestamp may be
/// absent. The value of a label is quoted, and may contain spaces, braces and escaped quotes.
fn metric(line: &str) -> Option<(&str, f64)> {
    let line = line.trim_start();
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let rest = match rest.trim_start().strip_prefix('{') {
        Some(labels) => after_labels(labels)?,
        None => rest,
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((name, value))
}

/// Returns the text after the brace that ends the labels. A brace inside a quoted value does not count.
fn after_labels(labels: &str) -> Option<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let end = labels.find(|c| {
        if std::mem::take(&mut escaped) {
            return false;
        }
        escaped = quoted && c == '\\';
        quoted ^= c == '"';
        c == '}' && !quoted
    })?;
    labels.get(end + 1..)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn loads(text: &str) -> (Option<f64>, Option<f64>) {
        load(text).map_or((None, None), |load| (load.waiting, load.cache_usage))
    }

    #[test]
    fn the_metrics_of_each_engine_are_read() {
        let vllm = r#"
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_running{engine="0",model_name="a"} 8.0
vllm:num_requests_waiting{engine="0",model_name="a"} 3.0
vllm:num_requests_waiting{engine="1",model_name="a"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a"} 0.75
"#;
        assert_eq!(loads(vllm), (Some(5.0), Some(0.75)));
        let old_vllm = "vllm:gpu_cache_usage_perc{model_name=\"a\"} 0.5\n";
        assert_eq!(loads(old_vllm), (None, Some(0.5)));
        let sglang = "sglang:num_queue_reqs{tp_rank=\"0\"} 7\nsglang:token_usage 0.1";
        assert_eq!(loads(sglang), (Some(7.0), Some(0.1)));
        let tgi = "# TYPE tgi_queue_size gauge\r\ntgi_queue_size 0\r\n";
        assert_eq!(loads(tgi), (Some(0.0), None));
    }

    #[test]
    fn labels_may_have_anything_in_them() {
        let line = r#"tgi_queue_size{a="b } 9 c",d="\" } 8 ",e="\\"} 4 1700000000000"#;
        assert_eq!(loads(line), (Some(4.0), None));
        assert_eq!(loads("\ttgi_queue_size {a=\"b\"}\t4"), (Some(4.0), None));
    }

    #[test]
    fn what_is_no_number_is_left_out() {
        for line in [
            "",
            "tgi_queue_size",
            "tgi_queue_size x",
            "tgi_queue_size NaN",
            "tgi_queue_size +Inf",
            "tgi_queue_size -1",
            "tgi_queue_size{a=\"b} 3",
            "#tgi_queue_size 3",
            "tgi_queue_size_total 3",
        ] {
            assert_eq!(loads(line), (None, None), "{line}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[tgi_queue_size{}=\"\\\\ 0-9é\n]{0,80}") {
            let (waiting, _) = loads(&text);
            prop_assert!(waiting.is_none_or(f64::is_finite));
        }
    }
}
