//! The failures of one tenant, which take no endpoint away from others.

use http::Request;
use http_body_util::Full;
use tower_triage::endpoints::NoResponse;
use tower_triage::route::RoutingConfig;

use super::support::{Answer, TestRouter, endpoint, status};

/// Asks as `tenant` with retries switched off, and answers at the endpoint that gets the request.
async fn asked(router: &mut TestRouter, tenant: &str, answer: Answer) {
    let request = Request::builder().header("x-tenant-id", tenant);
    let asked = router.send(request.body(Full::from(r#"{"model":"m"}"#)).unwrap());
    router.call().await.answer(answer);
    asked.await.unwrap();
}

/// A router in which `a` gets all requests until it is ejected.
fn preferred() -> TestRouter {
    let endpoints = [
        endpoint("a", 8, &["m"]),
        endpoint("b", 8, &["m"]).priority(90),
    ];
    TestRouter::new(endpoints, RoutingConfig::default().max_retries(0))
}

fn broke_off() -> Answer {
    let mut answer = status(502);
    answer.extensions_mut().insert(NoResponse::Reset);
    answer
}

#[tokio::test(start_paused = true)]
async fn one_tenants_failures_eject_no_endpoint_that_serves_others() {
    for failure in [|| status(500), broke_off] {
        let mut router = preferred();
        asked(&mut router, "honest", status(200)).await;
        for _ in 0..50 {
            asked(&mut router, "poison", failure()).await;
        }
        assert!(router.endpoint("a").healthy());
        assert_eq!(router.endpoint("a").failures(), 50);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_of_several_tenants_eject_an_endpoint() {
    let mut router = preferred();
    asked(&mut router, "honest", status(200)).await;
    for tenant in ["one", "two", "one", "two", "one", "two"] {
        asked(&mut router, tenant, status(500)).await;
    }
    assert!(!router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn one_tenants_failures_count_where_no_other_is_served() {
    let mut router = preferred();
    asked(&mut router, "only", status(200)).await;
    for _ in 0..5 {
        asked(&mut router, "only", status(500)).await;
    }
    assert!(!router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn connections_that_fail_are_no_tenants_own() {
    let mut router = preferred();
    asked(&mut router, "honest", status(200)).await;
    for _ in 0..5 {
        let mut answer = status(502);
        answer.extensions_mut().insert(NoResponse::Unreachable);
        asked(&mut router, "other", answer).await;
    }
    assert!(!router.endpoint("a").healthy());
}
