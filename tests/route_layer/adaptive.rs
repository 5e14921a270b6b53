//! Endpoints whose limit is found by measurement.

use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::time::advance;
use tower_triage::admit::{AdaptiveLimit, LimitAlgorithm};
use tower_triage::endpoints::Endpoint;
use tower_triage::route::RoutingConfig;

use super::support::{Routed, TestRouter, endpoint, settle, status};

fn aimd() -> AdaptiveLimit {
    AdaptiveLimit::default().algorithm(LimitAlgorithm::Aimd)
}

fn adaptive(limit: AdaptiveLimit) -> Endpoint {
    endpoint("a", 1, &["m"]).limit(limit)
}

/// A router with one endpoint, which is known and has answered nothing yet.
fn router(limit: AdaptiveLimit) -> TestRouter {
    let router = TestRouter::new([adaptive(limit)], RoutingConfig::default());
    router.handle.set_healthy(&router.endpoint("a"), true);
    router
}

fn limit(router: &TestRouter) -> u32 {
    router.endpoint("a").limit()
}

/// The limit that was measured. A refusal bounds the limit further for a moment.
fn measured(router: &TestRouter) -> u32 {
    router.endpoint("a").own_limit()
}

async fn answered(router: &mut TestRouter, code: u16) -> Routed {
    let asked = router.ask("m");
    router.call().await.answer(status(code));
    asked.await.expect("no panic")
}

#[tokio::test(start_paused = true)]
async fn slots_of_a_limit_that_grows_go_to_the_waiters() {
    let mut router = router(aimd().initial(1));
    (0..3).for_each(|_| _ = router.ask("m"));
    let first = router.call().await;
    assert!(router.settled().await.is_none());
    first.ok();
    let _second = router.call().await;
    let _third = router.call().await;
    assert_eq!((limit(&router), router.endpoint("a").in_flight()), (2, 2));
    assert_eq!(router.handle.status().limit, 2);
}

#[tokio::test(start_paused = true)]
async fn refusals_lower_the_limit_and_other_errors_do_not() {
    for (code, after) in [(200, 20), (404, 20), (500, 20), (503, 18)] {
        let mut router = router(aimd());
        let response = answered(&mut router, code).await;
        assert_eq!(response.status(), StatusCode::from_u16(code).unwrap());
        assert_eq!(limit(&router), after, "{code}");
    }
    let mut router = router(aimd());
    let asked = router.ask("m");
    router.call().await.answer(status(429));
    let again = router.call().await;
    assert_eq!(measured(&router), 18);
    again.ok();
    assert_eq!(asked.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_falls_retires_slots_as_they_come_back() {
    let mut router = router(aimd().initial(3));
    let asked: Vec<_> = (0..4).map(|_| router.ask("m")).collect();
    let running = [router.call().await, router.call().await];
    router.call().await.answer(status(429));
    settle().await;
    assert_eq!((limit(&router), router.endpoint("a").in_flight()), (2, 2));
    assert!(router.settled().await.is_none());
    running.into_iter().for_each(|call| call.ok());
    let mut asked = asked.into_iter();
    for served in asked.by_ref().take(2) {
        drop(served.await.expect("no panic"));
    }
    router.call().await.ok(); // the one that was refused
    router.call().await.ok();
    for asked in asked {
        asked.await.expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_counts_for_nothing() {
    let mut router = router(aimd().initial(1));
    let asked = router.ask("m");
    let call = router.call().await;
    asked.abort();
    settle().await;
    assert!(call.is_over());
    assert_eq!(limit(&router), 1);
    answered(&mut router, 200).await;
    assert_eq!(limit(&router), 2);
}

#[tokio::test(start_paused = true)]
async fn the_limit_survives_a_change_of_the_configuration_within_its_bounds() {
    let mut router = router(aimd().initial(1));
    answered(&mut router, 200).await;
    answered(&mut router, 200).await;
    let learned = limit(&router);
    assert_eq!(learned, 2);
    let change = |limit: Option<AdaptiveLimit>, slots| {
        let changed = router
            .handle
            .change_endpoints(|all| (all[0].limit, all[0].max_concurrent) = (limit, slots));
        changed.expect("valid");
        router.endpoint("a").limit()
    };
    assert_eq!(change(Some(aimd().initial(9).max(64)), 1), learned);
    assert_eq!(change(Some(aimd().max(1)), 1), 1);
    assert_eq!(change(Some(aimd().min(5)), 1), 5);
    // To a number and back.
    assert_eq!(change(None, 7), 7);
    assert_eq!(change(Some(aimd()), 7), 7);
    // Without slots, measurements begin as configured, unless an operator gave some.
    assert_eq!(change(None, 0), 0);
    assert_eq!(change(Some(aimd().initial(9)), 0), 9);
    assert_eq!(change(None, 0), 0);
    router.endpoint("a").set_limit(5);
    assert_eq!(change(Some(aimd().initial(9)), 0), 5);
}

#[tokio::test(start_paused = true)]
async fn a_response_from_before_changes_no_fixed_limit() {
    let mut router = router(aimd().initial(1));
    let asked = router.ask("m");
    let call = router.call().await;
    let fixed = |all: &mut Vec<Endpoint>| (all[0].limit, all[0].max_concurrent) = (None, 6);
    router.handle.change_endpoints(fixed).expect("valid");
    call.answer(status(429));
    router.call().await.ok();
    asked.await.expect("no panic");
    assert_eq!(measured(&router), 6);
}

#[tokio::test(start_paused = true)]
async fn a_removed_endpoint_stays_removed_and_comes_back_with_what_was_learned() {
    let mut router = router(aimd().initial(1));
    answered(&mut router, 200).await;
    let [ends, stays] = [router.ask("m"), router.ask("m")];
    let [first, second] = [router.call().await, router.call().await];
    let gone = router.endpoint("a");
    let remove = |all: &mut Vec<Endpoint>| all.clear();
    router.handle.change_endpoints(remove).expect("valid");
    first.ok();
    drop(ends.await.expect("no panic"));
    assert_eq!((gone.limit(), gone.in_flight()), (0, 1));
    let back = |all: &mut Vec<Endpoint>| all.push(adaptive(aimd()));
    router.handle.change_endpoints(back).expect("valid");
    assert_eq!((limit(&router), router.endpoint("a").in_flight()), (2, 1));
    second.ok();
    stays.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_refused_probe_returns_to_its_place_in_line() {
    for status_code in [429, 503] {
        // Retries are off, and so is their budget.
        let routing = RoutingConfig::default().max_retries(0);
        let mut router = TestRouter::new([adaptive(aimd().initial(2))], routing);
        router.handle.set_healthy(&router.endpoint("a"), true);
        let send = |name: &str| {
            let request = Request::builder().header("x-name", name);
            router.send(request.body(Full::from(r#"{"model":"m"}"#)).unwrap())
        };
        let mut asked = Vec::new();
        for name in ["first", "probe", "third"] {
            asked.push(send(name));
            settle().await;
            advance(Duration::from_millis(1)).await;
        }
        let (first, probe) = (router.call().await, router.call().await);
        assert_eq!(probe.headers["x-name"], "probe");
        probe.answer(status(status_code));
        settle().await;
        assert_eq!((limit(&router), router.endpoint("a").in_flight()), (1, 1));
        assert_eq!(router.handle.status().depth, 2, "{status_code}");
        first.ok();
        drop(asked.remove(0).await.expect("no panic"));
        for name in ["probe", "third"] {
            let call = router.call().await;
            assert_eq!(call.headers["x-name"], name);
            call.ok();
        }
        for asked in asked {
            assert_eq!(asked.await.expect("no panic").status(), StatusCode::OK);
        }
        assert!(router.endpoint("a").healthy());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_everything_is_not_asked_for_ever() {
    let mut router = router(aimd().initial(8));
    let asked: Vec<_> = (0..20).map(|_| router.ask("m")).collect();
    let mut calls = 0;
    while asked.iter().any(|asked| !asked.is_finished()) {
        let Some(call) = router.settled().await else {
            advance(Duration::from_millis(100)).await;
            continue;
        };
        call.answer(status(503));
        calls += 1;
        assert!(calls < 100, "{calls}");
    }
    assert_eq!(measured(&router), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_probe_whose_wait_is_over_gets_the_refusal() {
    let mut router = router(aimd().initial(2));
    let asked = [router.ask("m"), router.ask("m")];
    let (first, probe) = (router.call().await, router.call().await);
    probe.answer(status(503));
    let [_running, probe] = asked;
    let refused = probe.await.expect("no panic"); // after `max_wait`
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        refused.headers().get("retry-after").is_none(),
        "the endpoint's own answer"
    );
    drop(first);
}
