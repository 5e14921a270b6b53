//! Requests that wait for an ejected endpoint.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use tokio::task::JoinHandle;
use tower_triage::route::RoutingConfig;

use super::support::{Routed, TestRouter, code, endpoint, fail, settle, status};

const SECOND: Duration = Duration::from_secs(1);

/// `a`, which has eight slots and was ejected for a second, and `b`, which is down.
async fn ejected() -> TestRouter {
    let endpoints = [endpoint("a", 8, &["m"]), endpoint("b", 1, &["m"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    fail(&mut router, "a", 5, || status(503)).await;
    assert!(!router.endpoint("a").healthy());
    router.handle.set_healthy(&router.endpoint("b"), false);
    router
}

fn eight(router: &TestRouter) -> Vec<JoinHandle<Routed>> {
    (0..8).map(|_| router.ask("m")).collect()
}

#[tokio::test(start_paused = true)]
async fn while_one_request_probes_the_others_wait() {
    let mut router = ejected().await;
    tokio::time::advance(SECOND).await;
    settle().await;
    let asked = eight(&router);
    let probe = router.call().await;
    assert!(router.settled().await.is_none(), "one probe at a time");
    assert_eq!(router.handle.status().depth, 7);
    probe.ok();
    for _ in 0..7 {
        router.call().await.ok();
    }
    for asked in asked {
        assert_eq!(asked.await.unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_only_endpoint_left_is_ejected_requests_wait() {
    let mut router = ejected().await;
    let asked = eight(&router);
    assert!(router.settled().await.is_none());
    assert_eq!(router.handle.status().depth, 8);
    tokio::time::advance(SECOND).await;
    for _ in 0..8 {
        router.call().await.ok();
    }
    for asked in asked {
        assert_eq!(asked.await.unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_ejected_endpoint_ends_at_the_deadline() {
    let router = ejected().await;
    let request = Request::post("/")
        .header("x-request-timeout", "0.5")
        .body(Full::from(r#"{"model":"m"}"#));
    let asked = router.send(request.unwrap());
    let answer = asked.await.unwrap();
    assert_eq!(answer.status(), 504);
    assert_eq!(router.handle.status().depth, 0);
}

#[tokio::test(start_paused = true)]
async fn a_down_or_draining_ejected_endpoint_is_not_awaited() {
    for draining in [true, false] {
        let router = ejected().await;
        let waits = router.ask("m");
        settle().await;
        assert_eq!(router.handle.status().depth, 1);
        let a = router.endpoint("a");
        match draining {
            true => router.handle.set_draining(&a, true),
            false => router.handle.set_healthy(&a, false),
        }
        assert_eq!(code(waits.await.unwrap()).await, "no_healthy_backend");
        let late = router.ask("m").await.unwrap();
        assert_eq!(code(late).await, "no_healthy_backend");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_does_not_wait_for_an_ejected_endpoint() {
    let mut router = ejected().await;
    router.handle.set_healthy(&router.endpoint("b"), true);
    let asked = router.ask("m");
    let call = router.call().await;
    assert_eq!(call.endpoint(), "b");
    call.answer(status(503));
    assert!(router.settled().await.is_none());
    let answer = asked.await.unwrap();
    assert_eq!(super::support::header(&answer, "x-triage-endpoint"), "b");
}

#[test]
fn an_ejection_ends_with_the_runtime_of_the_request_that_failed() {
    let paused = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap()
    };
    let mut router = paused().block_on(ejected());
    paused().block_on(async {
        let probed = router.ask("m");
        router.call().await.ok();
        assert_eq!(probed.await.unwrap().status(), 200);
    });
}
