//! Checks and readings of endpoints that get their requests over HTTP/2.

use tower_triage::admit::AdaptiveLimit;
use tower_triage::endpoints::EngineMetrics;

use super::http2_frames::{Frames, GOAWAY};
use super::*;

async fn accept(upstream: &Upstream) -> Frames {
    let begun = async { Frames::begin(upstream.accept().await.0).await };
    soon(begun).await
}

#[tokio::test]
async fn checks_use_http_2_and_a_connection_each() {
    let upstream = Upstream::bind().await;
    let checked = endpoint("a", &upstream).http2(true).health(often());
    let router = TestRouter::of([checked]);
    let _checks = router.checks();
    for _ in 0..3 {
        let mut check = accept(&upstream).await;
        let (stream, _) = soon(check.request()).await;
        check.answer(stream, "ok").await;
        while let Some(frame) = soon(check.next()).await {
            assert_eq!(frame.kind, GOAWAY, "{frame:?}");
        }
    }
    assert!(router.endpoint("a").healthy());
}

#[tokio::test]
async fn an_endpoint_of_http_1_fails_its_check_over_http_2() {
    let upstream = Upstream::bind().await;
    let checked = endpoint("a", &upstream).http2(true).health(once());
    let router = TestRouter::of([checked]);
    let checks = router.checks();
    let serve = async { upstream.accept().await.send(WELL).await };
    tokio::join!(serve, soon(checks.first_results()));
    assert!(!router.endpoint("a").healthy());
}

#[tokio::test]
async fn the_load_of_an_engine_is_read_over_http_2() {
    let upstream = Upstream::bind().await;
    let read_often = EngineMetrics::default().interval(Duration::from_millis(1));
    let engine = endpoint("a", &upstream).http2(true).load(read_often);
    let router = TestRouter::of([engine.limit(AdaptiveLimit::default())]);
    let _readings = router.checks();
    let mut reading = accept(&upstream).await;
    let (stream, _) = soon(reading.request()).await;
    reading
        .answer(stream, "vllm:num_requests_waiting 3\n")
        .await;
    until(|| router.endpoint("a").engine().is_some()).await;
    let status = router.endpoint("a").engine().unwrap();
    assert_eq!(status.waiting, Some(3.0));
}

#[tokio::test]
async fn a_check_begins_anew_when_the_protocol_changes() {
    let upstream = Upstream::bind().await;
    let checked = endpoint("a", &upstream).health(once());
    let router = TestRouter::of([checked.clone()]);
    let checks = router.checks();
    tokio::join!(answer(&upstream, ILL), soon(checks.first_results()));
    assert!(!router.endpoint("a").healthy());
    let changed = checked.http2(true);
    router
        .handle
        .change_endpoints(|all| all[0] = changed)
        .unwrap();
    let mut check = accept(&upstream).await;
    let (stream, _) = soon(check.request()).await;
    check.answer(stream, "ok").await;
    until(|| router.endpoint("a").healthy()).await;
}
