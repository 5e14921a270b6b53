//! Request bodies that did not reach their endpoint: no failure of the endpoint.

use std::time::Duration;

use tower_triage::endpoints::NoResponse;
use tower_triage::route::RoutingConfig;

use super::support::{Answer, TestRouter, endpoint, fail, settle, status, two_routed};

fn not_sent(code: u16) -> Answer {
    let mut answer = status(code);
    answer.extensions_mut().insert(NoResponse::BodyNotSent);
    answer
}

fn eject_after(failures: u32) -> RoutingConfig {
    let mut routing = RoutingConfig::default();
    routing.eject_after = failures;
    routing
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_not_sent_ejects_no_endpoint() {
    let mut router = two_routed(eject_after(1));
    fail(&mut router, "a", 5, || not_sent(502)).await;
    fail(&mut router, "a", 5, || not_sent(400)).await;
    assert!(router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn an_unsent_body_does_not_reset_failures() {
    let mut router = two_routed(eject_after(2));
    fail(&mut router, "a", 1, || status(503)).await;
    fail(&mut router, "a", 1, || not_sent(400)).await;
    assert!(router.endpoint("a").healthy());
    fail(&mut router, "a", 1, || status(503)).await;
    assert!(!router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn an_unsent_body_is_retried_elsewhere_if_kept() {
    let mut router = two_routed(RoutingConfig::default());
    let asked = router.ask("m");
    let call = router.call().await;
    assert_eq!(call.endpoint(), "a");
    call.answer(not_sent(502));
    let again = router.call().await;
    assert_eq!(again.endpoint(), "b");
    again.ok();
    assert_eq!(asked.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_unsent_body_is_no_result_of_a_probe() {
    let mut routing = eject_after(1);
    routing.eject_for = Duration::from_secs(1);
    let endpoints = [endpoint("a", 2, &["m"]), endpoint("b", 2, &["m"])];
    let mut router = TestRouter::new(endpoints, routing);
    fail(&mut router, "a", 1, || status(503)).await;
    assert!(!router.endpoint("a").healthy());
    tokio::time::advance(Duration::from_secs(2)).await;
    settle().await;
    for code in [400, 502] {
        let asked = router.ask("m");
        let probe = router.call().await;
        assert_eq!(probe.endpoint(), "a");
        probe.answer(not_sent(code));
        if let Some(retried) = router.settled().await {
            retried.ok();
        }
        asked.await.unwrap();
        assert!(!router.endpoint("a").healthy());
    }
    let asked = router.ask("m");
    let probe = router.call().await;
    assert_eq!(probe.endpoint(), "a");
    probe.ok();
    asked.await.unwrap();
    assert!(router.endpoint("a").healthy());
}
