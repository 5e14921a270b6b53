//! A queue's metrics, through the `metrics` facade, on Tokio's paused clock.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{BoxError, Router};
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use metrics::set_default_local_recorder;
use metrics_exporter_prometheus::PrometheusBuilder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};
use tower::ServiceExt;
use tower_triage::admit::TargetWait;
use tower_triage::queue::QueueMetrics;
use tower_triage::{QueueConfig, QueueLayer};

/// Serves what the path asks for.
async fn serve(Path(what): Path<String>) -> Response {
    match what.as_str() {
        "slow" => sleep(Duration::from_secs(1)).await,
        "hangs" => std::future::pending().await,
        "panics" => panic!("the handler panics"),
        "breaks-off" => {
            let parts = stream::iter([Ok(Bytes::from("a")), Err(BoxError::from("broken off"))]);
            return Body::from_stream(parts).into_response();
        }
        "stalls" => {
            let parts = stream::iter([Ok::<_, BoxError>(Bytes::from("a"))]);
            return Body::from_stream(parts.chain(stream::pending())).into_response();
        }
        status => {
            if let Ok(status) = status.parse::<u16>() {
                return StatusCode::from_u16(status).unwrap().into_response();
            }
        }
    }
    "served".into_response()
}

/// An app behind a queue with metrics.
struct App(Router);

impl App {
    fn new(config: QueueConfig) -> Self {
        let queue = QueueLayer::new(config)
            .exempt(|request: &Request<_>| request.uri().path() == "/health")
            .observe(QueueMetrics::new());
        let router = Router::new().route("/{what}", any(serve)).layer(queue);
        Self(router)
    }

    /// Sends a request, which has arrived when this returns, and reads its response.
    async fn ask(&self, method: &str, path: &str) -> JoinHandle<()> {
        let request = Request::builder().method(method).uri(path);
        let call = self.0.clone().oneshot(request.body(Body::empty()).unwrap());
        let sent = tokio::spawn(async move {
            let response = call.await.unwrap();
            _ = response.into_body().collect().await; // it may break off
        });
        settle().await;
        sent
    }
}

async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// Returns the series that have changed since the last call: by how much a counter or a gauge has, and the new values of a
/// histogram.
fn series(snapshotter: &Snapshotter) -> BTreeMap<String, Vec<f64>> {
    let all = snapshotter.snapshot().into_vec().into_iter();
    let all = all.filter_map(|(key, _, _, value)| {
        let (_, key) = key.into_parts();
        let labels = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()));
        let words: Vec<_> = [key.name().to_owned()].into_iter().chain(labels).collect();
        let values = match value {
            DebugValue::Counter(0) => vec![],
            DebugValue::Counter(count) => vec![count as f64],
            DebugValue::Gauge(value) if value.0 == 0.0 => vec![],
            DebugValue::Gauge(value) => vec![value.0],
            DebugValue::Histogram(values) => values.into_iter().map(|value| value.0).collect(),
        };
        (!values.is_empty()).then(|| (words.join(" "), values))
    });
    all.collect()
}

/// Checks that these are all changes since the last look.
fn assert_series(snapshotter: &Snapshotter, expected: &[(&str, &[f64])]) {
    let expected = expected.iter();
    let expected = expected.map(|(name, values)| ((*name).to_owned(), values.to_vec()));
    assert_eq!(series(snapshotter), expected.collect());
}

#[tokio::test(start_paused = true)]
async fn each_request_is_measured_once_by_its_end() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let app = App::new(QueueConfig::new(1));
    for (method, path, ran, labels) in [
        ("GET", "/slow", 1.0, "GET http.response.status_code=200"),
        ("POST", "/201", 0.0, "POST http.response.status_code=201"),
        ("BREW", "/404", 0.0, "_OTHER http.response.status_code=404"),
        (
            "GET",
            "/503",
            0.0,
            "GET http.response.status_code=503 error.type=503",
        ),
        (
            "GET",
            "/breaks-off",
            0.0,
            "GET http.response.status_code=200 error.type=broke_off",
        ),
        (
            "GET",
            "/stalls",
            2.0,
            "GET http.response.status_code=200 error.type=cancelled",
        ),
        ("GET", "/hangs", 2.0, "GET error.type=cancelled"),
        ("GET", "/panics", 0.0, "GET error.type=panicked"),
        ("GET", "/health", 0.0, ""),
    ] {
        for _ in 0..2 {
            let asked = app.ask(method, path).await;
            sleep(Duration::from_secs(2)).await;
            asked.abort();
            settle().await;
            let name = format!("http.server.request.duration http.request.method={labels}");
            match labels {
                "" => assert_series(&snapshotter, &[]),
                _ => assert_series(&snapshotter, &[(&name, &[ran])]),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_measured_while_requests_wait() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let config = QueueConfig::new(1)
        .max_size(2)
        .max_wait(Duration::from_secs(2));
    let app = App::new(config.target_wait(TargetWait::Off));
    const ACTIVE: &str = "http.server.active_requests http.request.method=GET";
    const POSTED: &str = "http.server.active_requests http.request.method=POST";
    const QUEUED: &str = "triage.queue.queued_requests";
    const REFUSED: &str = "http.server.request.duration http.request.method=POST \
         http.response.status_code=503 error.type=queue_full";
    const LATE: &str = "http.server.request.duration http.request.method=GET \
         http.response.status_code=503 error.type=queue_timeout";
    const GIVEN_UP: &str = "http.server.request.duration http.request.method=GET \
         error.type=cancelled";

    let _slow = app.ask("GET", "/slow").await;
    assert_series(&snapshotter, &[(ACTIVE, &[1.0])]);
    let _served = app.ask("POST", "/slow").await;
    let given_up = app.ask("GET", "/slow").await;
    let _refused = app.ask("POST", "/slow").await;
    let full = [
        (ACTIVE, &[1.0][..]),
        (POSTED, &[1.0]),
        (QUEUED, &[2.0]),
        ("triage.queue.rejections error.type=queue_full", &[1.0]),
        (REFUSED, &[0.0]),
    ];
    assert_series(&snapshotter, &full);

    advance(Duration::from_millis(500)).await;
    given_up.abort();
    settle().await;
    let left = [(ACTIVE, &[-1.0][..]), (QUEUED, &[-1.0]), (GIVEN_UP, &[0.5])];
    assert_series(&snapshotter, &left);

    advance(Duration::from_millis(500)).await;
    settle().await;
    let ok = |method| {
        format!(
            "http.server.request.duration http.request.method={method} \
             http.response.status_code=200"
        )
    };
    let admitted = [
        (ACTIVE, &[-1.0][..]),
        (QUEUED, &[-1.0]),
        ("triage.queue.request.time_in_queue", &[1.0]),
        (&ok("GET"), &[1.0]),
    ];
    assert_series(&snapshotter, &admitted);
    advance(Duration::from_secs(1)).await;
    settle().await;
    assert_series(&snapshotter, &[(POSTED, &[-1.0]), (&ok("POST"), &[2.0])]);

    let hangs = app.ask("GET", "/hangs").await;
    let _late = app.ask("GET", "/slow").await;
    advance(Duration::from_secs(2)).await;
    settle().await;
    let late = [
        (ACTIVE, &[1.0][..]),
        ("triage.queue.rejections error.type=queue_timeout", &[1.0]),
        (LATE, &[2.0]),
    ];
    assert_series(&snapshotter, &late);
    hangs.abort();
    settle().await;
    assert_series(&snapshotter, &[(ACTIVE, &[-1.0]), (GIVEN_UP, &[2.0])]);
}

/// Returns the page of a Prometheus exporter after two requests, one of which is rejected.
async fn page(exporter: PrometheusBuilder) -> String {
    let recorder = exporter.build_recorder();
    let _guard = set_default_local_recorder(&recorder);
    let app = App::new(QueueConfig::new(1).max_size(0));
    let _slow = app.ask("GET", "/slow").await;
    let _refused = app.ask("GET", "/slow").await;
    sleep(Duration::from_secs(2)).await;
    recorder.handle().render()
}

#[tokio::test(start_paused = true)]
async fn prometheus_has_the_names_of_the_documentation() {
    let plain = page(PrometheusBuilder::new()).await;
    let recommended = page(PrometheusBuilder::new().with_recommended_naming(true)).await;
    let labels = r#"{http_request_method="GET",http_response_status_code="200"}"#;
    for (page, unit, total) in [(&plain, "", ""), (&recommended, "_seconds", "_total")] {
        for line in [
            format!("http_server_request_duration{unit}_sum{labels} 1"),
            r#"http_server_active_requests{http_request_method="GET"} 0"#.to_owned(),
            format!(r#"triage_queue_rejections{total}{{error_type="queue_disabled"}} 1"#),
        ] {
            let has_it = page.lines().any(|printed| printed == line);
            assert!(has_it, "{line}: {page}");
        }
    }
}
