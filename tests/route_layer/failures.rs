//! Failed attempts: retries, ejections and probes.

use std::time::Duration;

use http::Response;
use tower_triage::QueueConfig;
use tower_triage::endpoints::NoResponse;
use tower_triage::route::RoutingConfig;

use super::support::{
    Answer, Call, TestRouter, endpoint, fail, header, settle, status, two, two_routed,
};

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
async fn a_failed_request_frees_its_slot_and_is_retried() {
    let mut router = two();
    let asked = router.ask("m");
    let first = router.call().await;
    assert_eq!(first.endpoint(), "a");
    first.answer(status(503));
    let second = router.call().await;
    assert_eq!(second.endpoint(), "b");
    assert_eq!(second.decision.retries, 1);
    assert_eq!(router.in_flight()["a"], 0);
    second.ok();
    let answer = asked.await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(header(&answer, "x-triage-endpoint"), "b");
}

#[tokio::test(start_paused = true)]
async fn only_retryable_responses_are_retried() {
    for (code, retried) in [
        (502, true),
        (503, true),
        (504, true),
        (400, false),
        (404, false),
        (500, false),
        (501, false),
    ] {
        let mut router = two();
        let asked = router.ask("m");
        router.call().await.answer(status(code));
        match router.settled().await {
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
async fn the_last_answer_passes_after_max_retries() {
    for retries in [0, 1, 3] {
        let several = ["a", "b", "c", "d"].map(|name| endpoint(name, 1, &["m"]));
        let mut router = TestRouter::new(several, RoutingConfig::default().max_retries(retries));
        let asked = router.ask("m");
        for _ in 0..=retries {
            router.call().await.answer(status(503));
        }
        assert!(router.settled().await.is_none());
        let answer = asked.await.unwrap();
        assert_eq!(answer.status(), 503);
        assert!(!header(&answer, "x-triage-endpoint").is_empty());
        assert!(router.in_flight().values().all(|&busy| busy == 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_never_goes_to_the_same_endpoint() {
    for answer in [status(502), status(503), status(504), unreachable()] {
        let mut router = TestRouter::new([endpoint("a", 4, &["m"])], RoutingConfig::default());
        let asked = router.ask("m");
        let code = answer.status();
        router.call().await.answer(answer);
        assert!(router.settled().await.is_none(), "{code}");
        let answer = asked.await.unwrap();
        assert_eq!(answer.status(), code);
        assert_eq!(header(&answer, "x-triage-endpoint"), "a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_request_is_retried_once() {
    let several = ["a", "b", "c", "d"].map(|name| endpoint(name, 1, &["m"]));
    let mut router = TestRouter::new(several, RoutingConfig::default().max_retries(3));
    let asked = router.ask("m");
    for name in ["a", "b"] {
        let call = router.call().await;
        assert_eq!(call.endpoint(), name);
        call.answer(broke_off());
    }
    assert!(router.settled().await.is_none());
    assert_eq!(asked.await.unwrap().status(), 502);
}

#[tokio::test(start_paused = true)]
async fn one_requests_failures_count_against_its_first_endpoint() {
    let several = ["a", "b", "c", "d"].map(|name| endpoint(name, 1, &["m"]));
    for answer in [|| status(503), broke_off, unreachable] {
        let mut router = TestRouter::new(several.clone(), RoutingConfig::default().max_retries(3));
        for _ in 0..5 {
            let asked = router.ask("m");
            while let Some(call) = router.settled().await {
                call.answer(answer());
            }
            asked.await.unwrap();
        }
        let healthy = ["a", "b", "c", "d"].map(|name| router.endpoint(name).healthy());
        assert_eq!(healthy, [false, true, true, true]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_into_a_full_room_gets_the_failure() {
    let routing = RoutingConfig::default();
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["m"])];
    let queue = QueueConfig::default().max_size(0);
    let mut router = TestRouter::with_queue(endpoints, routing, queue);
    let asked = router.ask("m");
    let first = router.call().await;
    router.ask("m");
    let second = router.call().await;
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
    let mut router = two();
    router.ask("m");
    let at_a = router.call().await;
    router.ask("m");
    let at_b = router.call().await;
    let waits = router.ask("m");
    settle().await;
    assert_eq!(router.handle.status().depth, 1);
    // The retry arrived before the waiter, so it is next at the other endpoint; the waiter gets the slot here.
    at_a.answer(status(503));
    let waiter = router.call().await;
    assert_eq!((waiter.endpoint(), waiter.decision.retries), ("a", 0));
    let late = router.ask("m");
    settle().await;
    at_b.ok();
    let again = router.call().await;
    assert_eq!((again.endpoint(), again.decision.retries), ("b", 1));
    assert!(!waits.is_finished() && !late.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_caller_leaving_during_a_retry_frees_everything() {
    let mut router = two();
    let asked = router.ask("m");
    router.call().await.answer(status(503));
    let again = router.call().await;
    asked.abort();
    settle().await;
    assert!(again.is_over());
    assert!(router.in_flight().values().all(|&busy| busy == 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_not_retried() {
    let mut routing = RoutingConfig::default();
    routing.retry_body_limit_bytes = 5;
    let mut router = two_routed(routing);
    let asked = router.ask("m");
    router.call().await.answer(status(503));
    assert!(router.settled().await.is_none());
    assert_eq!(asked.await.unwrap().status(), 503);
}

#[tokio::test(start_paused = true)]
async fn retries_never_become_the_load() {
    let mut routing = RoutingConfig::default().max_retries(5);
    routing.eject_after = 0;
    let several = [endpoint("a", 50, &["m"]), endpoint("b", 50, &["m"])];
    let mut router = TestRouter::new(several, routing);
    let mut calls = 0;
    for _ in 0..1_000 {
        let asked = router.ask("m");
        while let Some(call) = router.settled().await {
            calls += 1;
            call.answer(status(503));
        }
        assert_eq!(asked.await.unwrap().status(), 503);
    }
    // 0.2 of the requests, and the reserve of 100 in 10 s.
    assert!((1_200..=1_300).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn repeated_failures_eject_an_endpoint_until_a_probe() {
    let mut router = two();
    fail(&mut router, "a", 5, || status(503)).await;
    assert!(!router.endpoint("a").healthy());
    for _ in 0..3 {
        let asked = router.ask("m");
        let call = router.call().await;
        assert_eq!(call.endpoint(), "b");
        call.ok();
        asked.await.unwrap();
    }
    tokio::time::advance(SECOND).await;
    settle().await;
    assert!(!router.endpoint("a").healthy());
    router.ask("m");
    let probe = router.call().await;
    assert_eq!(probe.endpoint(), "a");
    let other = router.ask("m");
    let call = router.call().await;
    assert_eq!(call.endpoint(), "b", "one probe at a time");
    call.ok();
    other.await.unwrap();
    probe.ok();
    settle().await;
    assert!(router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_doubles_the_ejection() {
    let mut router = two();
    fail(&mut router, "a", 5, || status(503)).await;
    tokio::time::advance(SECOND).await;
    settle().await;
    fail(&mut router, "a", 1, || status(503)).await;
    tokio::time::advance(SECOND).await;
    settle().await;
    let asked = router.ask("m");
    let call = router.call().await;
    assert_eq!(call.endpoint(), "b");
    call.ok();
    asked.await.unwrap();
    tokio::time::advance(SECOND).await;
    settle().await;
    router.ask("m");
    assert_eq!(router.call().await.endpoint(), "a");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_probe_goes_to_another_request() {
    let mut router = two();
    fail(&mut router, "a", 5, || status(503)).await;
    tokio::time::advance(SECOND).await;
    settle().await;
    let asked = router.ask("m");
    assert_eq!(router.call().await.endpoint(), "a");
    asked.abort();
    settle().await;
    router.ask("m");
    let probe = router.call().await;
    assert_eq!(probe.endpoint(), "a");
    probe.ok();
    settle().await;
    assert!(router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn client_errors_eject_no_endpoint() {
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    for code in [400, 401, 404, 413, 422] {
        fail(&mut router, "a", 10, || status(code)).await;
    }
    assert!(router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn client_errors_end_no_streak_of_failures() {
    let mut router = two_routed(RoutingConfig::default().max_retries(0));
    for _ in 0..4 {
        fail(&mut router, "a", 1, || status(500)).await;
        fail(&mut router, "a", 1, || status(400)).await;
    }
    assert!(router.endpoint("a").healthy());
    fail(&mut router, "a", 1, || status(500)).await;
    assert!(!router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn a_client_error_decides_nothing_about_a_probe() {
    let mut router = two();
    fail(&mut router, "a", 5, || status(500)).await;
    tokio::time::advance(SECOND).await;
    settle().await;
    for code in [400, 404] {
        fail(&mut router, "a", 1, || status(code)).await;
        assert!(!router.endpoint("a").healthy(), "{code}");
    }
    router.ask("m");
    let probe = router.call().await;
    assert_eq!(probe.endpoint(), "a");
    probe.ok();
    settle().await;
    assert!(router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn half_of_the_requests_that_fail_eject_an_endpoint() {
    let mut router = two_routed(RoutingConfig::default().max_retries(0));
    let mut failed = 0;
    while router.endpoint("a").healthy() {
        if failed > 0 {
            fail(&mut router, "a", 1, || status(200)).await;
        }
        fail(&mut router, "a", 1, || status(500)).await;
        failed += 1;
        assert!(failed <= 10, "{failed}");
    }
    assert_eq!(failed, 10);
}

#[tokio::test(start_paused = true)]
async fn the_last_endpoint_stays_whether_or_not_it_answers() {
    let routing = || RoutingConfig::default().max_retries(0);
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], routing());
    fail(&mut router, "a", 20, || status(500)).await;
    assert!(router.endpoint("a").healthy());

    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], routing());
    fail(&mut router, "a", 20, unreachable).await;
    assert!(router.endpoint("a").healthy());
    let asked = router.ask("m");
    router.call().await.ok();
    assert_eq!(asked.await.unwrap().status(), 200);
    assert!(router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn the_only_endpoint_of_another_model_stays() {
    let endpoints = [endpoint("a", 1, &["m", "own"]), endpoint("b", 1, &["m"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    fail(&mut router, "a", 20, || status(503)).await;
    assert!(router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn a_models_last_endpoint_is_ejected_with_a_fallback() {
    let routing = RoutingConfig::default().fallbacks("m", ["n"]);
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])];
    let mut router = TestRouter::new(endpoints, routing);
    fail(&mut router, "a", 5, || status(500)).await;
    assert!(!router.endpoint("a").healthy());
    router.ask("m");
    assert_eq!(router.call().await.endpoint(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_keeps_the_last_endpoint_in_service() {
    let mut router = two();
    fail(&mut router, "a", 5, || status(500)).await;
    let alone = router.handle.change_endpoints(|all| all.truncate(1));
    assert_eq!(alone.unwrap().removed, ["b"]);
    tokio::time::advance(SECOND).await;
    settle().await;
    let asked = router.ask("m");
    router.call().await.answer(status(500));
    assert_eq!(asked.await.unwrap().status(), 500);
    assert!(router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn a_retry_may_go_to_a_fallback() {
    let routing = RoutingConfig::default().fallbacks("m", ["n"]);
    let mut router = TestRouter::new(
        [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])],
        routing,
    );
    let asked = router.ask("m");
    router.call().await.answer(unreachable());
    let call = router.call().await;
    assert_eq!((call.endpoint(), &*call.body), ("b", r#"{"model":"n"}"#));
    call.answer(Response::new("ok".into()));
    let answer = asked.await.unwrap();
    assert_eq!(header(&answer, "x-triage-model"), "n");
}

#[test]
fn max_ejected_percent_above_100_is_refused() {
    let routing = |percent| RoutingConfig::default().max_ejected_percent(percent);
    assert!(routing(100).validate().is_ok());
    let error = routing(101).validate().unwrap_err().to_string();
    assert!(error.contains("`max_ejected_percent` = 101"), "{error}");
}

/// Asks, and leaves after half a second. Returns the endpoint that got the request, if it has not answered.
async fn leaves(router: &mut TestRouter) -> String {
    let asked = router.ask("m");
    let call = router.call().await;
    let name = call.endpoint().to_owned();
    tokio::time::advance(SECOND / 2).await;
    asked.abort();
    settle().await;
    name
}

/// Asks, and succeeds. Returns the endpoint that got the request.
async fn succeeds(router: &mut TestRouter) -> String {
    let asked = router.ask("m");
    let call = router.call().await;
    let name = call.endpoint().to_owned();
    call.ok();
    asked.await.unwrap();
    name
}

#[tokio::test(start_paused = true)]
async fn a_frozen_endpoint_is_the_last_resort_once_a_caller_has_given_up() {
    let mut router = two();
    fail(&mut router, "a", 1, || status(200)).await; // in no time
    assert_eq!(leaves(&mut router).await, "a");
    for _ in 0..10 {
        assert_eq!(succeeds(&mut router).await, "b");
    }
    let busy = router.ask("m");
    let at_b = router.call().await;
    assert_eq!((at_b.endpoint(), &*leaves(&mut router).await), ("b", "a"));
    at_b.ok();
    busy.await.unwrap();
    assert_eq!(succeeds(&mut router).await, "b");
}

#[tokio::test(start_paused = true)]
async fn a_silent_endpoint_that_answers_is_as_good_as_before() {
    let mut router = two();
    fail(&mut router, "a", 1, || status(200)).await;
    assert_eq!(leaves(&mut router).await, "a");
    let busy = router.ask("m");
    let at_b = router.call().await;
    assert_eq!(at_b.endpoint(), "b");
    assert_eq!(succeeds(&mut router).await, "a", "no slot is lost");
    assert_eq!(succeeds(&mut router).await, "a");
    at_b.ok();
    busy.await.unwrap();
    assert_eq!(leaves(&mut router).await, "a");
    assert_eq!(succeeds(&mut router).await, "b");
    tokio::time::advance(30 * SECOND).await; // nothing more was heard of it
    settle().await;
    assert_eq!(succeeds(&mut router).await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_silent_endpoint_gets_one_request_at_a_time_while_another_answers() {
    let endpoints = [endpoint("a", 8, &["m"]), endpoint("b", 1, &["m"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    fail(&mut router, "a", 1, || status(200)).await;
    assert_eq!(leaves(&mut router).await, "a");
    let busy = router.ask("m");
    let at_b = router.call().await;
    let _hangs = router.ask("m");
    let at_a = router.call().await;
    assert_eq!((at_b.endpoint(), at_a.endpoint()), ("b", "a"));
    let waits = router.ask("m");
    assert!(router.settled().await.is_none());
    at_b.ok();
    busy.await.unwrap();
    let at_b = router.call().await;
    assert_eq!(at_b.endpoint(), "b");
    at_b.ok();
    waits.await.unwrap();
    tokio::time::advance(29 * SECOND).await;
    let _busy = router.ask("m");
    let at_b = router.call().await;
    let _waits = router.ask("m");
    assert!(router.settled().await.is_none());
    tokio::time::advance(SECOND).await; // nothing more was heard of it
    assert_eq!(router.call().await.endpoint(), "a");
    drop((at_a, at_b));
}

#[tokio::test(start_paused = true)]
async fn a_silent_endpoint_keeps_its_slots_if_others_cannot_serve_all_its_requests() {
    let endpoints = [endpoint("a", 8, &["m", "n"]), endpoint("b", 1, &["m"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    fail(&mut router, "a", 1, || status(200)).await;
    assert_eq!(leaves(&mut router).await, "a");
    let _asked = [router.ask("n"), router.ask("n")];
    let calls = [router.call().await, router.call().await];
    assert_eq!(calls.each_ref().map(Call::endpoint), ["a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn the_timer_of_an_earlier_silence_ends_no_later_one() {
    let mut router = two();
    fail(&mut router, "a", 1, || status(200)).await;
    assert_eq!(leaves(&mut router).await, "a");
    tokio::time::advance(20 * SECOND).await;
    let busy = router.ask("m");
    let at_b = router.call().await;
    assert_eq!(succeeds(&mut router).await, "a");
    at_b.ok();
    busy.await.unwrap();
    assert_eq!(leaves(&mut router).await, "a");
    tokio::time::advance(10 * SECOND).await;
    settle().await;
    assert_eq!(succeeds(&mut router).await, "b");
    tokio::time::advance(20 * SECOND).await;
    settle().await;
    assert_eq!(succeeds(&mut router).await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_during_a_silence_does_not_prolong_it() {
    let mut router = two();
    fail(&mut router, "a", 1, || status(200)).await;
    assert_eq!(leaves(&mut router).await, "a");
    let busy = router.ask("m");
    let at_b = router.call().await;
    assert_eq!(leaves(&mut router).await, "a");
    at_b.ok();
    busy.await.unwrap();
    assert_eq!(succeeds(&mut router).await, "b");
    tokio::time::advance(30 * SECOND).await;
    settle().await;
    assert_eq!(succeeds(&mut router).await, "a");
}

#[tokio::test(start_paused = true)]
async fn a_silence_ends_when_no_other_endpoint_is_left() {
    let endpoints = [endpoint("a", 8, &["m"]), endpoint("b", 1, &["m"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    fail(&mut router, "a", 1, || status(200)).await;
    assert_eq!(leaves(&mut router).await, "a");
    router.handle.set_draining(&router.endpoint("b"), true);
    let _asked = [router.ask("m"), router.ask("m")];
    let calls = [router.call().await, router.call().await];
    assert_eq!(calls.each_ref().map(Call::endpoint), ["a", "a"]);
}

#[test]
fn a_silence_ends_with_the_runtime_that_measures_it() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let first = runtime();
    let mut router = first.block_on(async {
        let mut router = two();
        fail(&mut router, "a", 1, || status(200)).await;
        assert_eq!(leaves(&mut router).await, "a");
        router
    });
    drop(first);
    let answered = runtime().block_on(async { succeeds(&mut router).await });
    assert_eq!(answered, "a");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_gives_up_never_ejects_an_endpoint() {
    for seed in 0..30 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let endpoints = [endpoint("a", 8, &["m"]), endpoint("b", 1, &["m"])];
        let mut router = TestRouter::new(endpoints, RoutingConfig::default());
        fail(&mut router, "a", 1, || status(200)).await;
        for _ in 0..40 {
            let long: Vec<_> = (0..rng.u8(1..5)).map(|_| router.ask("m")).collect();
            settle().await;
            tokio::time::advance(SECOND.mul_f64(rng.f64())).await;
            long.iter().for_each(|it| it.abort());
            while router.settled().await.is_some() {}
            // Answers to the client itself, or to others.
            for _ in 0..rng.u8(..3) {
                let asked = router.ask("m");
                let answer = [200, 400, 429][rng.usize(..3)];
                router.call().await.answer(status(answer));
                asked.abort();
                while router.settled().await.is_some() {}
            }
            assert!(router.endpoint("a").healthy() && router.endpoint("b").healthy());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_whose_caller_gives_up_has_no_result() {
    let mut router = two();
    fail(&mut router, "a", 1, || status(200)).await;
    fail(&mut router, "a", 5, || status(500)).await;
    tokio::time::advance(SECOND).await;
    settle().await;
    for _ in 0..3 {
        assert_eq!(leaves(&mut router).await, "a");
    }
    assert_eq!(succeeds(&mut router).await, "a");
    assert!(router.endpoint("a").healthy());
}

#[tokio::test(start_paused = true)]
async fn callers_that_give_up_say_nothing_of_an_endpoint_at_work() {
    let endpoints = [endpoint("a", 2, &["m"]), endpoint("b", 1, &["m"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    fail(&mut router, "a", 1, || status(200)).await;
    for _ in 0..10 {
        let asked = router.ask("m");
        let slow = router.call().await;
        assert_eq!(slow.endpoint(), "a");
        fail(&mut router, "a", 1, || status(200)).await;
        tokio::time::advance(SECOND / 2).await;
        asked.abort();
        settle().await;
    }
    assert!(router.endpoint("a").healthy());
}
