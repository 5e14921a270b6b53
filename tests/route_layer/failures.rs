//! What becomes of requests whose endpoint fails them.

use std::time::Duration;

use http::Response;
use tower_triage::QueueConfig;
use tower_triage::endpoints::NoResponse;
use tower_triage::route::RoutingConfig;

use super::support::{Answer, House, endpoint, fail, header, settle, status, two, two_routed};

const SECOND: Duration = Duration::from_secs(1);

fn unreachable() -> Answer {
    let mut answer = status(502);
    answer.extensions_mut().insert(NoResponse::Unreachable);
    answer
}

fn broke_off() -> Answer {
    let mut answer = status(502);
    answer.extensions_mut().insert(NoResponse::Reset);
    answer
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_is_tried_elsewhere_with_its_slot_given_back() {
    let mut house = two();
    let asked = house.ask("m");
    let first = house.call().await;
    assert_eq!(first.endpoint(), "a");
    first.answer(status(503));
    let second = house.call().await;
    assert_eq!(second.endpoint(), "b");
    assert_eq!(second.decision.retries, 1);
    assert_eq!(house.in_flight()["a"], 0);
    second.ok();
    let answer = asked.await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(header(&answer, "x-triage-endpoint"), "b");
}

#[tokio::test(start_paused = true)]
async fn only_what_another_endpoint_may_do_better_is_tried_again() {
    for (code, retried) in [
        (502, true),
        (503, true),
        (504, true),
        (400, false),
        (404, false),
        (429, false),
        (500, false),
        (501, false),
    ] {
        let mut house = two();
        let asked = house.ask("m");
        house.call().await.answer(status(code));
        match house.settled().await {
            Some(again) => {
                assert!(retried, "{code}");
                again.ok();
                assert_eq!(asked.await.unwrap().status(), 200);
            }
            None => {
                assert!(!retried, "{code}");
                assert_eq!(asked.await.unwrap().status(), code);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn there_are_as_many_retries_as_configured_and_the_last_answer_is_passed_on() {
    for retries in [0, 1, 3] {
        let several = ["a", "b", "c", "d"].map(|name| endpoint(name, 1, &["m"]));
        let mut house = House::new(several, RoutingConfig::default().max_retries(retries));
        let asked = house.ask("m");
        for _ in 0..=retries {
            house.call().await.answer(status(503));
        }
        assert!(house.settled().await.is_none());
        let answer = asked.await.unwrap();
        assert_eq!(answer.status(), 503);
        assert!(!header(&answer, "x-triage-endpoint").is_empty());
        assert!(house.in_flight().values().all(|&busy| busy == 0));
    }
}

#[tokio::test(start_paused = true)]
async fn who_says_when_to_come_back_is_not_asked_before() {
    let mut house = House::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    let asked = house.ask("m");
    let mut answer = status(503);
    answer.headers_mut().insert("retry-after", 7.into());
    house.call().await.answer(answer);
    assert!(house.settled().await.is_none());
    let answer = asked.await.unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!(header(&answer, "retry-after"), "7");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_tried_again_at_the_same_endpoint() {
    for answer in [status(502), status(503), status(504), unreachable()] {
        let mut house = House::new([endpoint("a", 4, &["m"])], RoutingConfig::default());
        let asked = house.ask("m");
        let code = answer.status();
        house.call().await.answer(answer);
        assert!(house.settled().await.is_none(), "{code}");
        let answer = asked.await.unwrap();
        assert_eq!(answer.status(), code);
        assert_eq!(header(&answer, "x-triage-endpoint"), "a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_endpoints_break_off_on_is_tried_once_more_elsewhere() {
    let several = ["a", "b", "c", "d"].map(|name| endpoint(name, 1, &["m"]));
    let mut house = House::new(several, RoutingConfig::default().max_retries(3));
    let asked = house.ask("m");
    for name in ["a", "b"] {
        let call = house.call().await;
        assert_eq!(call.endpoint(), name);
        call.answer(broke_off());
    }
    assert!(house.settled().await.is_none());
    assert_eq!(asked.await.unwrap().status(), 502);
}

#[tokio::test(start_paused = true)]
async fn the_failures_of_one_request_count_once_against_the_first_that_failed_it() {
    let several = ["a", "b", "c", "d"].map(|name| endpoint(name, 1, &["m"]));
    for answer in [|| status(503), broke_off, unreachable] {
        let mut house = House::new(several.clone(), RoutingConfig::default().max_retries(3));
        for _ in 0..5 {
            let asked = house.ask("m");
            while let Some(call) = house.settled().await {
                call.answer(answer());
            }
            asked.await.unwrap();
        }
        let healthy = ["a", "b", "c", "d"].map(|name| house.endpoint(name).healthy());
        assert_eq!(healthy, [false, true, true, true]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_finds_no_chair_is_answered_with_the_failure() {
    let routing = RoutingConfig::default();
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])];
    let queue = QueueConfig::default().max_size(0);
    let mut house = House::furnished(endpoints, routing, queue);
    let asked = house.ask("m");
    let first = house.call().await;
    house.ask("m");
    let second = house.call().await;
    assert_ne!(first.endpoint(), second.endpoint());
    first.answer(status(503));
    let answer = asked.await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(
        header(&answer, "retry-after").is_empty(),
        "not our rejection"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_where_it_first_came() {
    let mut house = two();
    house.ask("m");
    let at_a = house.call().await;
    house.ask("m");
    let at_b = house.call().await;
    let waits = house.ask("m");
    settle().await;
    assert_eq!(house.handle.status().depth, 1);
    // It came before who waits, so it is next when the other endpoint is free; who waits gets the slot.
    at_a.answer(status(503));
    let waiter = house.call().await;
    assert_eq!((waiter.endpoint(), waiter.decision.retries), ("a", 0));
    let late = house.ask("m");
    settle().await;
    at_b.ok();
    let again = house.call().await;
    assert_eq!((again.endpoint(), again.decision.retries), ("b", 1));
    assert!(!waits.is_finished() && !late.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_in_mid_retry_leaves_nothing_behind() {
    let mut house = two();
    let asked = house.ask("m");
    house.call().await.answer(status(503));
    let again = house.call().await;
    asked.abort();
    settle().await;
    assert!(again.is_over());
    assert!(house.in_flight().values().all(|&busy| busy == 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_too_large_to_keep_is_not_tried_again() {
    let mut routing = RoutingConfig::default();
    routing.retry_body_limit_bytes = 5;
    let mut house = two_routed(routing);
    let asked = house.ask("m");
    house.call().await.answer(status(503));
    assert!(house.settled().await.is_none());
    assert_eq!(asked.await.unwrap().status(), 503);
}

#[tokio::test(start_paused = true)]
async fn retries_never_become_the_load() {
    let mut routing = RoutingConfig::default().max_retries(5);
    routing.eject_after = 0;
    let several = [endpoint("a", 50, &["m"]), endpoint("b", 50, &["m"])];
    let mut house = House::new(several, routing);
    let mut calls = 0;
    for _ in 0..1_000 {
        let asked = house.ask("m");
        while let Some(call) = house.settled().await {
            calls += 1;
            call.answer(status(503));
        }
        assert_eq!(asked.await.unwrap().status(), 503);
    }
    // 0.2 of the requests, and the 100 that are always allowed in ten seconds.
    assert!((1_200..=1_300).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn who_fails_too_often_is_left_alone_and_then_tried_once() {
    let mut house = two();
    fail(&mut house, "a", 5, || status(503)).await;
    assert!(!house.endpoint("a").healthy());
    for _ in 0..3 {
        let asked = house.ask("m");
        let call = house.call().await;
        assert_eq!(call.endpoint(), "b");
        call.ok();
        asked.await.unwrap();
    }
    tokio::time::advance(SECOND).await;
    settle().await;
    assert!(!house.endpoint("a").healthy());
    house.ask("m");
    let trial = house.call().await;
    assert_eq!(trial.endpoint(), "a");
    let other = house.ask("m");
    let call = house.call().await;
    assert_eq!(call.endpoint(), "b", "one at a time is on trial");
    call.ok();
    other.await.unwrap();
    trial.ok();
    settle().await;
    assert!(house.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn a_failed_trial_lasts_twice_as_long() {
    let mut house = two();
    fail(&mut house, "a", 5, || status(503)).await;
    tokio::time::advance(SECOND).await;
    settle().await;
    fail(&mut house, "a", 1, || status(503)).await;
    tokio::time::advance(SECOND).await;
    settle().await;
    let asked = house.ask("m");
    let call = house.call().await;
    assert_eq!(call.endpoint(), "b");
    call.ok();
    asked.await.unwrap();
    tokio::time::advance(SECOND).await;
    settle().await;
    house.ask("m");
    assert_eq!(house.call().await.endpoint(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_trial_whose_caller_leaves_is_somebody_elses() {
    let mut house = two();
    fail(&mut house, "a", 5, || status(503)).await;
    tokio::time::advance(SECOND).await;
    settle().await;
    let asked = house.ask("m");
    assert_eq!(house.call().await.endpoint(), "a");
    asked.abort();
    settle().await;
    house.ask("m");
    let trial = house.call().await;
    assert_eq!(trial.endpoint(), "a");
    trial.ok();
    settle().await;
    assert!(house.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn what_clients_do_wrong_ejects_nobody() {
    let mut house = House::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    for code in [400, 401, 404, 413, 422, 429] {
        fail(&mut house, "a", 10, || status(code)).await;
    }
    assert!(house.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn the_last_endpoint_stays_whether_or_not_it_answers() {
    let routing = || RoutingConfig::default().max_retries(0);
    let mut house = House::new([endpoint("a", 1, &["m"])], routing());
    fail(&mut house, "a", 20, || status(500)).await;
    assert!(house.endpoint("a").healthy());

    let mut house = House::new([endpoint("a", 1, &["m"])], routing());
    fail(&mut house, "a", 20, unreachable).await;
    assert!(house.endpoint("a").healthy());
    let asked = house.ask("m");
    house.call().await.ok();
    assert_eq!(asked.await.unwrap().status(), 200);
    assert!(house.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_the_only_one_of_another_model_stays() {
    let endpoints = [endpoint("a", 1, &["m", "own"]), endpoint("b", 1, &["m"])];
    let mut house = House::new(endpoints, RoutingConfig::default());
    fail(&mut house, "a", 20, || status(503)).await;
    assert!(house.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn the_last_endpoint_of_a_model_gives_way_to_a_fallback() {
    let routing = RoutingConfig::default().fallbacks("m", ["n"]);
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])];
    let mut house = House::new(endpoints, routing);
    fail(&mut house, "a", 5, || status(500)).await;
    assert!(!house.endpoint("a").healthy());
    house.ask("m");
    assert_eq!(house.call().await.endpoint(), "b");
}

#[tokio::test(start_paused = true)]
async fn who_fails_its_trial_stays_if_it_is_the_last_by_now() {
    let mut house = two();
    fail(&mut house, "a", 5, || status(500)).await;
    let alone = house.handle.change_endpoints(|all| all.truncate(1));
    assert_eq!(alone.unwrap().removed, ["b"]);
    tokio::time::advance(SECOND).await;
    settle().await;
    let asked = house.ask("m");
    house.call().await.answer(status(500));
    assert_eq!(asked.await.unwrap().status(), 500);
    assert!(house.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn a_retry_may_go_to_a_fallback() {
    let routing = RoutingConfig::default().fallbacks("m", ["n"]);
    let mut house = House::new(
        [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])],
        routing,
    );
    let asked = house.ask("m");
    house.call().await.answer(unreachable());
    let call = house.call().await;
    assert_eq!((call.endpoint(), &*call.body), ("b", r#"{"model":"n"}"#));
    call.answer(Response::new("ok".into()));
    let answer = asked.await.unwrap();
    assert_eq!(header(&answer, "x-triage-model"), "n");
}

#[test]
fn a_share_of_ejected_endpoints_above_all_of_them_is_refused_by_name() {
    let routing = |percent| RoutingConfig::default().max_ejected_percent(percent);
    assert!(routing(100).validate().is_ok());
    let error = routing(101).validate().unwrap_err().to_string();
    assert!(error.contains("`max_ejected_percent` = 101"), "{error}");
}
