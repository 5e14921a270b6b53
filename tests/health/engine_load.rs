//! Engines that report their load, and the limits of their endpoints.

use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm};
use tower_triage::endpoints::EngineMetrics;
use tracing_subscriber::filter::LevelFilter;

use super::log::Log;
use super::*;

/// Frequent readings. One has had its effect when the next arrives.
fn read_often() -> EngineMetrics {
    EngineMetrics::default().interval(Duration::from_millis(1))
}

fn engine(name: &str, upstream: &Upstream) -> Endpoint {
    let aimd = AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd);
    endpoint(name, upstream).limit(aimd).load(read_often())
}

fn says(metrics: &str) -> String {
    let length = metrics.len();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{metrics}")
}

fn waiting(requests: u32) -> String {
    says(&format!(
        "vllm:num_requests_waiting{{model_name=\"m\"}} {requests}\nvllm:kv_cache_usage_perc 0.5\n"
    ))
}

/// Answers readings, and returns when the last of them has had its effect, with the next reading.
async fn after(upstream: &Upstream, readings: &[String]) -> Connection {
    for reading in readings {
        answer(upstream, reading).await;
    }
    check_at(upstream).await.0
}

#[tokio::test]
async fn the_limit_falls_while_requests_wait_inside() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([engine("a", &upstream)]);
    let _readings = router.checks();
    let limit = || router.endpoint("a").limit();
    assert_eq!(limit(), 20);
    let (mut reading, head) = check_at(&upstream).await;
    assert!(head.starts_with("get /metrics http/1.1\r\n"), "{head}");
    for (requests, expected) in [(0, 20), (3, 18), (1, 17), (0, 17), (0, 17), (2, 16)] {
        reading.send(&waiting(requests)).await;
        reading = check_at(&upstream).await.0;
        assert_eq!(limit(), expected);
    }
    let status = router.endpoint("a").engine().expect("a reading");
    assert_eq!(status.waiting, Some(2.0));
    assert_eq!(status.cache_usage, Some(0.5));
}

#[tokio::test]
async fn a_reading_does_not_count_before_a_lower_limit_takes_effect() {
    let upstream = Upstream::bind().await;
    let engine = engine("a", &upstream);
    let router = TestRouter::of([engine]);
    router.handle.set_healthy(&router.endpoint("a"), true);
    let running = [router.enter("m").await, router.enter("m").await];
    router.handle.set_limit(&router.endpoint("a"), 1);
    let _readings = router.checks();
    let reading = after(&upstream, &[waiting(1), waiting(1), waiting(1)]).await;
    assert_eq!(router.endpoint("a").limit(), 1);
    assert_eq!(router.endpoint("a").in_flight(), 2);
    router.go.add_permits(2);
    for running in running {
        assert_eq!(soon(running).await.unwrap().0, 200);
    }
    drop(reading);
}

#[tokio::test]
async fn slots_of_a_limit_that_a_reading_restores_go_to_the_waiters() {
    let upstream = Upstream::bind().await;
    let router = TestRouter::of([engine("a", &upstream)]);
    router.handle.set_healthy(&router.endpoint("a"), true);
    router.handle.set_limit(&router.endpoint("a"), 1);
    let requests = [router.enter("m").await, router.enter("m").await];
    assert_eq!(router.handle.status().depth, 1);
    let _readings = router.checks();
    // What was measured is 20: an operator's limit stays until the next measurement.
    let _reading = after(&upstream, &[waiting(1)]).await;
    assert_eq!(router.endpoint("a").limit(), 18);
    assert_eq!(router.handle.status().depth, 0);
    router.go.add_permits(2);
    for request in requests {
        assert_eq!(soon(request).await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn readings_begin_and_end_with_the_endpoints() {
    let [a, b] = [Upstream::bind().await, Upstream::bind().await];
    let router = TestRouter::of([engine("a", &a)]);
    let _readings = router.checks();
    let reading_at_a = after(&a, &[waiting(0)]).await;
    let change = |all: &mut Vec<Endpoint>| {
        all.clear();
        all.push(engine("b", &b));
    };
    router.handle.change_endpoints(change).expect("valid");
    let _reading = after(&b, &[waiting(1)]).await;
    assert_eq!(router.endpoint("b").limit(), 18);
    soon(reading_at_a.closed()).await; // given up
    let later = timeout(Duration::from_millis(50), a.accept()).await;
    assert!(later.is_err(), "read after it was removed");
}

#[tokio::test]
async fn a_changed_limit_is_the_one_that_falls() {
    let upstream = Upstream::bind().await;
    let fixed = endpoint("a", &upstream)
        .max_concurrent(10)
        .load(read_often());
    let router = TestRouter::of([fixed]);
    let _readings = router.checks();
    let reading = after(&upstream, &[waiting(1)]).await;
    assert_eq!(router.endpoint("a").limit(), 10);
    let adapts = |all: &mut Vec<Endpoint>| all[0] = engine("a", &upstream);
    router.handle.change_endpoints(adapts).expect("valid");
    soon(reading.closed()).await;
    let _reading = after(&upstream, &[waiting(1)]).await;
    assert_eq!(router.endpoint("a").limit(), 9);
}

#[tokio::test]
async fn an_engine_that_does_not_say_is_logged_once_and_changes_nothing() {
    let log = Log::default();
    let _installed = log.install(LevelFilter::INFO);
    for says_nothing in [ILL.to_owned(), says("requests_total 7\n")] {
        let upstream = Upstream::bind().await;
        let router = TestRouter::of([engine("a", &upstream)]);
        let _readings = router.checks();
        let first = after(&upstream, &[waiting(1)]).await;
        assert!(router.endpoint("a").engine().is_some());
        drop(first);
        let _second = after(&upstream, &[says_nothing.clone(), says_nothing]).await;
        assert!(router.endpoint("a").engine().is_none());
        assert_eq!(router.endpoint("a").limit(), 18);
        let lines = log.take();
        let said = lines.matches("the load of the endpoint's engine is not known");
        assert_eq!(said.count(), 1, "{lines}");
    }
}
