//! A router's metrics, through the `metrics` facade.
#![cfg(not(loom))]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use metrics::set_default_local_recorder;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tokio::time::sleep;
use tower::{Service, ServiceExt, service_fn};
use tower_triage::admit::TargetWait;
use tower_triage::endpoints::{Endpoint, Model, Registry};
use tower_triage::route::{RouteBody, RouteLayerBuilder, RoutingConfig};
use tower_triage::{PriorityLevels, QueueConfig, RouteHandle, RouteLayer};

type Body = UnsyncBoxBody<Bytes, BrokenOff>;

#[derive(Debug, thiserror::Error)]
#[error("broken off")]
struct BrokenOff;

fn endpoint(name: &str, models: &[&str]) -> Endpoint {
    let url = Uri::from_static("http://127.0.0.1:9");
    let endpoint = Endpoint::new(name, url).max_concurrent(1);
    let models = models.iter().map(|&name| Model::new(name));
    models.fold(endpoint, Endpoint::model)
}

fn builder() -> RouteLayerBuilder {
    let endpoints = vec![endpoint("gpu-1", &["m", "n"]), endpoint("gpu-2", &["o"])];
    let routing = RoutingConfig::default()
        .alias("gpt", "m")
        .fallbacks("none", ["o"]);
    RouteLayer::builder(Registry::new(endpoints).unwrap()).routing(routing)
}

/// A router over endpoints that do what the header `x-do` says.
#[derive(Clone)]
struct TestRouter {
    layer: RouteLayer,
    handle: RouteHandle,
}

impl TestRouter {
    fn new(builder: RouteLayerBuilder) -> Self {
        let layer = builder.build();
        let handle = layer.handle();
        Self { layer, handle }
    }

    async fn ask(&self, model: &str, what: &str) {
        let layer = tower::ServiceBuilder::new().layer(self.layer.clone());
        let mut service = layer.service(service_fn(serve));
        let body = serde_json::json!({ "model": model }).to_string();
        let request = Request::post("/").header("x-do", what);
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let answer = service.ready().await.unwrap().call(request).await;
        let Ok(answer) = answer else { return };
        let mut body = answer.into_body();
        // It may break off. As servers do, nothing is read after trailers.
        while let Some(Ok(frame)) = body.frame().await
            && !frame.is_trailers()
        {}
    }
}

async fn serve(request: Request<RouteBody<Full<Bytes>>>) -> Result<Response<Body>, BrokenOff> {
    let what = request.headers()["x-do"].to_str().unwrap();
    let body = |text: &'static str| {
        let body = Full::from(text).map_err(|never: Infallible| match never {});
        body.boxed_unsync()
    };
    let mut response = Response::new(body("ok"));
    match what {
        "hang" => pending().await,
        "fail" => return Err(BrokenOff),
        "break off" => {
            let frames = [Ok(Frame::data(Bytes::from("o"))), Err(BrokenOff)];
            response = Response::new(StreamBody::new(stream::iter(frames)).boxed_unsync());
        }
        "trailers" => {
            let trailers = Frame::trailers(http::HeaderMap::new());
            let frames = [Ok(Frame::data(Bytes::from("o"))), Ok(trailers)];
            response = Response::new(StreamBody::new(stream::iter(frames)).boxed_unsync());
        }
        "stall" => {
            let frames = stream::pending::<Result<_, BrokenOff>>();
            response = Response::new(StreamBody::new(frames).boxed_unsync());
        }
        status => *response.status_mut() = status.parse().unwrap(),
    }
    Ok(response)
}

/// All series with their values; a histogram's is how many were recorded. Counters start again at 0.
fn series(snapshotter: &Snapshotter) -> BTreeMap<String, f64> {
    let all = snapshotter.snapshot().into_vec();
    let all = all.into_iter().map(|(key, _, _, value)| {
        let (_, key) = key.into_parts();
        let labels = key.labels().map(|label| label.value());
        let name = key.name().strip_prefix("triage_").unwrap();
        let words: Vec<_> = [name].into_iter().chain(labels).collect();
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.0,
            DebugValue::Histogram(values) => values.len() as f64,
        };
        (words.join(" "), value)
    });
    all.collect()
}

#[tokio::test(start_paused = true)]
async fn each_request_is_counted_once_by_its_outcome() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let routing = RoutingConfig::default()
        .alias("gpt", "m")
        .fallbacks("none", ["o"])
        .max_retries(0);
    let router = TestRouter::new(builder().routing(routing));
    for (model, what, counted) in [
        ("m", "200", "gpu-1 m ok"),
        ("m", "302", "gpu-1 m ok"),
        ("n", "404", "gpu-1 n client_error"),
        ("gpt", "500", "gpu-1 m server_error"),
        ("none", "200", "gpu-2 o ok"),
        ("m", "trailers", "gpu-1 m ok"),
        ("m", "break off", "gpu-1 m broke_off"),
        ("m", "fail", "gpu-1 m failed"),
        ("m", "hang", "gpu-1 m cancelled"),
        ("m", "stall", "gpu-1 m cancelled"),
        ("gpt-5", "200", "none other model_not_found"),
        ("", "200", "none other model_missing"),
    ] {
        let hurried = tokio::time::timeout(Duration::from_secs(1), router.ask(model, what));
        let _ = hurried.await; // some never end by themselves
        let counted = format!("requests_total {counted}");
        let series = series(&snapshotter);
        let requests = series
            .iter()
            .filter(|(name, count)| name.starts_with("requests_total") && **count > 0.0);
        let requests: Vec<_> = requests.collect();
        assert_eq!(requests, [(&counted, &1.0)], "{model} {what}");
        assert_eq!(
            series
                .get("fallbacks_total none o")
                .is_some_and(|n| *n > 0.0),
            model == "none"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_retry_that_is_sent_counts() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let endpoints = vec![endpoint("gpu-1", &["m"]), endpoint("gpu-2", &["m", "n"])];
    let queue = QueueConfig::default().max_wait(Duration::from_secs(1));
    let router =
        TestRouter::new(RouteLayer::builder(Registry::new(endpoints).unwrap()).queue(queue));
    let busy = tokio::time::timeout(Duration::from_secs(5), router.ask("n", "hang"));
    let refused = async {
        sleep(Duration::from_secs(1)).await;
        router.ask("m", "503").await; // no slot at the other endpoint in time
        series(&snapshotter)
    };
    let (_, refused) = tokio::join!(busy, refused);
    assert_eq!(refused["requests_total gpu-1 m server_error"], 1.0);
    assert!(!refused.contains_key("retries_total gpu-1"), "{refused:?}");
    router.ask("m", "503").await;
    let sent = series(&snapshotter);
    let retries = ["gpu-1", "gpu-2"].map(|at| sent.get(&format!("retries_total {at}")));
    assert_eq!(retries.into_iter().flatten().sum::<f64>(), 1.0, "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_is_retried_counts_once() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let endpoints = vec![endpoint("gpu-1", &["m"]), endpoint("gpu-2", &["m"])];
    let routing = RoutingConfig::default().fallbacks("none", ["m"]);
    let registry = Registry::new(endpoints).unwrap();
    let router = TestRouter::new(RouteLayer::builder(registry).routing(routing));
    router.ask("none", "503").await;
    let series = series(&snapshotter);
    let retries = ["gpu-1", "gpu-2"].map(|at| series.get(&format!("retries_total {at}")));
    assert_eq!(retries.into_iter().flatten().sum::<f64>(), 1.0);
    assert_eq!(series["fallbacks_total none m"], 1.0);
}

#[tokio::test(start_paused = true)]
async fn waits_count_by_level_and_cancellations_too() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let router = TestRouter::new(builder().queue(QueueConfig::default().max_size(1)));
    let long = async {
        let _ = tokio::time::timeout(Duration::from_secs(5), router.ask("m", "hang")).await;
    };
    let others = async {
        sleep(Duration::from_secs(1)).await;
        let gives_up = router.ask("m", "200");
        assert!(
            tokio::time::timeout(Duration::from_secs(1), gives_up)
                .await
                .is_err()
        );
        tokio::join!(router.ask("gpt", "200"), router.ask("n", "200"));
    };
    tokio::join!(long, others);
    let series = series(&snapshotter);
    assert_eq!(series["queue_wait_seconds normal"], 1.0);
    assert_eq!(series["requests_total gpu-1 m cancelled"], 1.0);
    assert_eq!(series["requests_total none m cancelled"], 1.0);
    assert_eq!(series["requests_total none n queue_full"], 1.0);
    assert_eq!(series["requests_total gpu-1 m ok"], 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wait_is_no_wait() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let router = TestRouter::new(builder());
    let mut running = Box::pin(router.ask("m", "hang"));
    assert!(futures_util::poll!(&mut running).is_pending());
    let mut waiting = Box::pin(router.ask("m", "200"));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    router.ask("o", "200").await; // while another waits
    let series = series(&snapshotter);
    assert_eq!(series["requests_total gpu-2 o ok"], 1.0);
    assert!(!series.contains_key("queue_wait_seconds normal"));
}

#[tokio::test]
async fn unknown_model_names_add_no_series() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let router = TestRouter::new(builder());
    for model in ["m", "gpt", "made-up"] {
        router.ask(model, "200").await;
    }
    let before: Vec<_> = series(&snapshotter).into_keys().collect();
    for n in 0..10_000_u64 {
        let made_up = format!("{n}-{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        router.ask(&made_up, "200").await;
    }
    let after = series(&snapshotter);
    assert_eq!(after["requests_total none other model_not_found"], 10_000.0);
    assert!(after.into_keys().eq(before));
}

#[tokio::test]
async fn a_recorder_installed_late_gets_later_requests() {
    let router = TestRouter::new(builder());
    router.ask("m", "200").await;
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    router.ask("m", "200").await;
    assert_eq!(series(&snapshotter)["requests_total gpu-1 m ok"], 1.0);
}

#[tokio::test]
async fn counters_go_on_after_a_change_of_endpoints_and_of_the_recorder() {
    let router = TestRouter::new(builder());
    let recorders = [DebuggingRecorder::new(), DebuggingRecorder::new()];
    for recorder in &recorders {
        let snapshotter = recorder.snapshotter();
        let _guard = set_default_local_recorder(recorder);
        router.ask("n", "200").await;
        let moved = |endpoints: &mut Vec<Endpoint>| endpoints[0].models.reverse();
        router.handle.change_endpoints(moved).unwrap();
        router.ask("n", "200").await;
        router.ask("m", "200").await;
        router.ask("n", "404").await;
        let series = series(&snapshotter);
        assert_eq!(series["requests_total gpu-1 n ok"], 2.0);
        assert_eq!(series["requests_total gpu-1 m ok"], 1.0);
        assert_eq!(series["requests_total gpu-1 n client_error"], 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn waits_follow_the_names_of_levels() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let router = TestRouter::new(builder());
    for levels in [["high", "normal"], ["high", "low"]] {
        let queue = QueueConfig::default().levels(PriorityLevels::new(levels, levels[1]).unwrap());
        router.handle.reconfigure(queue).unwrap();
        let running = async {
            let _ = tokio::time::timeout(Duration::from_secs(1), router.ask("m", "hang")).await;
        };
        tokio::join!(running, router.ask("n", "200"));
        let waits = format!("queue_wait_seconds {}", levels[1]);
        assert_eq!(series(&snapshotter)[&waits], 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn levels_are_counted_and_their_gauges_end_with_them() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let config = QueueConfig::default()
        .max_size(1)
        .target_wait(TargetWait::Off);
    let router = TestRouter::new(builder().queue(config));
    let mut asked = Vec::new();
    for _ in 0..3 {
        let mut request = Box::pin(router.ask("m", "hang"));
        let _ = futures_util::poll!(&mut request);
        asked.push(request);
    }
    tokio::time::advance(Duration::from_secs(3)).await;
    router.handle.record_gauges();
    let shown = series(&snapshotter);
    assert_eq!(shown["level_waiting normal"], 1.0);
    assert_eq!(shown["level_rejected_total normal queue_full"], 1.0);
    assert_eq!(shown["level_target_wait_seconds normal"], f64::INFINITY);
    assert_eq!(shown["queue_oldest_seconds normal"], 3.0);
    assert_eq!(shown["queue_oldest_seconds high"], 0.0);
    assert!(
        !shown
            .keys()
            .any(|name| name.starts_with("level_rejected_total high"))
    );

    let levels = PriorityLevels::new(["high", "low"], "low").unwrap();
    router
        .handle
        .reconfigure(QueueConfig::default().levels(levels))
        .unwrap();
    router.handle.record_gauges();
    let shown = series(&snapshotter);
    assert_eq!(shown["level_waiting low"], 1.0);
    assert_eq!(shown["level_waiting normal"], 0.0);
}

#[tokio::test(start_paused = true)]
async fn gauges_are_current_and_zero_for_endpoints_that_left() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = set_default_local_recorder(&recorder);
    let router = TestRouter::new(builder());
    let mut running = Box::pin(router.ask("m", "hang"));
    assert!(futures_util::poll!(&mut running).is_pending());
    let mut waiting = Box::pin(router.ask("m", "200"));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    router
        .handle
        .set_healthy(&router.handle.endpoints()[1], false);
    router.handle.record_gauges();
    let gauges = |name: &str, one: f64, two: f64| {
        [
            (format!("endpoint_{name} gpu-1"), one),
            (format!("endpoint_{name} gpu-2"), two),
        ]
    };
    let mut shown = series(&snapshotter);
    assert_eq!(
        shown.remove("endpoint_health_changes_total gpu-2"),
        Some(1.0)
    );
    let mut expected: BTreeMap<_, _> = [
        gauges("in_flight", 1.0, 0.0),
        gauges("limit", 1.0, 1.0),
        gauges("limit_adaptive", 0.0, 0.0),
        gauges("healthy", 1.0, 0.0),
    ]
    .into_iter()
    .flatten()
    .collect();
    expected.insert("queue_depth".to_owned(), 1.0);
    expected.insert("running".to_owned(), 1.0);
    // No slot has come back yet, so no wait is known.
    for (level, waiting) in [("high", 0.0), ("normal", 1.0)] {
        let estimate = shown.remove(&format!("level_estimated_wait_seconds {level}"));
        assert!(estimate.unwrap().is_nan());
        // What is idle is not known yet: more than half of what the room lets a request wait.
        let target = shown.remove(&format!("level_target_wait_seconds {level}"));
        assert!(target.is_some_and(|target| (15.0..30.0).contains(&target)));
        for (gauge, value) in [("waiting", waiting), ("reserved_slots", 0.0)] {
            expected.insert(format!("level_{gauge} {level}"), value);
        }
        expected.insert(format!("queue_oldest_seconds {level}"), 0.0);
    }
    assert_eq!(shown, expected);

    drop((running, waiting));
    let remove = |endpoints: &mut Vec<Endpoint>| _ = endpoints.remove(0);
    router.handle.change_endpoints(remove).unwrap();
    router.handle.record_gauges();
    let shown = series(&snapshotter);
    for gone in gauges("in_flight", 0.0, 0.0)
        .into_iter()
        .chain([("endpoint_limit gpu-1".to_owned(), 0.0)])
        .chain([("endpoint_healthy gpu-1".to_owned(), 0.0)])
        .chain([("queue_depth".to_owned(), 0.0), ("running".to_owned(), 0.0)])
    {
        assert_eq!(shown[&gone.0], gone.1, "{}", gone.0);
    }
}
