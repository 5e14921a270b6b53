//! Requests whose body did not get to their endpoint, which says nothing of the endpoint.

use std::time::Duration;

use tower_triage::endpoints::NoResponse;
use tower_triage::route::RoutingConfig;

use super::support::{Answer, House, endpoint, fail, settle, status, two_routed};

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
    let mut house = two_routed(eject_after(1));
    fail(&mut house, "a", 5, || not_sent(502)).await;
    fail(&mut house, "a", 5, || not_sent(400)).await;
    assert!(house.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_not_sent_makes_up_for_no_failure() {
    let mut house = two_routed(eject_after(2));
    fail(&mut house, "a", 1, || status(503)).await;
    fail(&mut house, "a", 1, || not_sent(400)).await;
    assert!(house.endpoint("a").healthy());
    fail(&mut house, "a", 1, || status(503)).await;
    assert!(!house.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_not_sent_is_sent_elsewhere_if_it_was_kept() {
    let mut house = two_routed(RoutingConfig::default());
    let asked = house.ask("m");
    let call = house.call().await;
    assert_eq!(call.endpoint(), "a");
    call.answer(not_sent(502));
    let again = house.call().await;
    assert_eq!(again.endpoint(), "b");
    again.ok();
    assert_eq!(asked.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_not_sent_decides_no_trial() {
    let mut routing = eject_after(1);
    routing.eject_for = Duration::from_secs(1);
    let endpoints = [endpoint("a", 2, &["m"]), endpoint("b", 2, &["m"])];
    let mut house = House::new(endpoints, routing);
    fail(&mut house, "a", 1, || status(503)).await;
    assert!(!house.endpoint("a").healthy());
    tokio::time::advance(Duration::from_secs(2)).await;
    settle().await;
    for code in [400, 502] {
        let asked = house.ask("m");
        let trial = house.call().await;
        assert_eq!(trial.endpoint(), "a");
        trial.answer(not_sent(code));
        if let Some(retried) = house.settled().await {
            retried.ok();
        }
        asked.await.unwrap();
        assert!(!house.endpoint("a").healthy());
    }
    let asked = house.ask("m");
    let trial = house.call().await;
    assert_eq!(trial.endpoint(), "a");
    trial.ok();
    asked.await.unwrap();
    assert!(house.endpoint("a").healthy());
}
