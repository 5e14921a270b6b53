//! The health of an endpoint as it is reported, and ejections by an operator.

use std::time::Duration;

use tokio::time::advance;
use tower_triage::endpoints::HealthState;
use tower_triage::route::RoutingConfig;

use super::support::{TestRouter, endpoint, fail, settle, status};

const SECOND: Duration = Duration::from_secs(1);

fn two() -> TestRouter {
    let endpoints = [endpoint("a", 8, &["m"]), endpoint("b", 1, &["m"])];
    TestRouter::new(endpoints, RoutingConfig::default())
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_and_named_as_the_reason() {
    let mut router = two();
    fail(&mut router, "a", 5, || status(503)).await;
    let a = router.endpoint("a");
    let health = a.health();
    assert_eq!(health.state, HealthState::Ejected);
    assert_eq!(health.reason.as_deref(), Some("5 requests in a row failed"));
    assert_eq!((a.failures(), router.endpoint("b").failures()), (5, 0));
    assert!(a.retries() > 0);
    advance(SECOND).await;
    settle().await;
    let health = a.health();
    assert_eq!((health.state, health.since), (HealthState::Probing, SECOND));
}

#[tokio::test(start_paused = true)]
async fn an_operator_ejects_an_endpoint_until_a_probe_succeeds() {
    let mut router = two();
    let a = router.endpoint("a");
    assert!(router.handle.eject(&a));
    assert_eq!(a.health().state, HealthState::Ejected);
    assert_eq!(a.health().reason.as_deref(), Some("an operator ejected it"));
    let elsewhere = router.ask("m");
    let call = router.call().await;
    assert_eq!(call.endpoint(), "b");
    advance(SECOND).await;
    settle().await;
    let probe = router.ask("m");
    let probing = router.call().await;
    assert_eq!(probing.endpoint(), "a");
    probing.ok();
    call.ok();
    assert_eq!(probe.await.unwrap().status(), 200);
    assert_eq!(elsewhere.await.unwrap().status(), 200);
    assert_eq!(a.health().state, HealthState::Healthy);
    assert_eq!(a.health().reason, None);
}

#[tokio::test(start_paused = true)]
async fn the_last_endpoint_of_a_model_is_not_ejected_by_an_operator() {
    let router = two();
    let (a, b) = (router.endpoint("a"), router.endpoint("b"));
    assert!(router.handle.eject(&a));
    assert!(router.handle.eject(&a), "it is ejected already");
    assert!(!router.handle.eject(&b));
    assert!(b.healthy());
}
