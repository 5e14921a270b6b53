//! New endpoints, which have neither answered a request nor passed a check. Without a check they count as healthy.

use tower_triage::endpoints::{Endpoint, FallbackWhen, HealthCheck, NoResponse};
use tower_triage::route::{RoutingConfig, StrategyChoice};

use super::support::{TestRouter, code, endpoint, fail, settle, status};

/// An endpoint with a check that has not run yet.
fn unchecked(name: &str, slots: u32, model: &str) -> Endpoint {
    endpoint(name, slots, &[model]).health(HealthCheck::default())
}

/// `names` with four slots each for `m`, all with a check that has not run yet.
fn checked(names: &[&str], strategy: &str) -> TestRouter {
    let endpoints = names.iter().map(|name| unchecked(name, 4, "m"));
    let routing = RoutingConfig::default().strategy(strategy.parse().unwrap());
    TestRouter::new(endpoints.collect::<Vec<_>>(), routing)
}

#[tokio::test(start_paused = true)]
async fn an_unchecked_endpoint_gets_nothing_while_others_are_free() {
    for strategy in StrategyChoice::NAMES {
        let mut router = checked(&["mute", "good"], strategy);
        router.handle.set_healthy(&router.endpoint("good"), true);
        for _ in 0..6 {
            let asked = router.ask("m");
            let call = router.call().await;
            assert_eq!(call.endpoint(), "good", "{strategy}");
            call.ok();
            asked.await.unwrap();
        }
        let _held: Vec<_> = (0..6).map(|_| router.ask("m")).collect();
        settle().await;
        let in_flight = router.in_flight();
        assert_eq!((in_flight["good"], in_flight["mute"]), (4, 1), "{strategy}");
        assert_eq!(router.handle.status().depth, 1, "{strategy}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_endpoint_gets_one_request_until_it_answers() {
    let mut router = checked(&["a", "b"], "smart");
    let asked: Vec<_> = (0..8).map(|_| router.ask("m")).collect();
    settle().await;
    let (first, second) = (router.call().await, router.call().await);
    assert!(router.settled().await.is_none());
    assert_eq!(router.handle.status().depth, 6, "they wait");
    assert_ne!(first.endpoint(), second.endpoint());
    for answers in [first, second] {
        let known = answers.endpoint().to_owned();
        answers.ok();
        // The fourth slot is held as long as the answer's body is not read.
        for _ in 0..3 {
            let call = router.call().await;
            assert_eq!(call.endpoint(), known);
            call.ok();
        }
    }
    for asked in asked {
        assert_eq!(asked.await.unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_passed_check_serves_the_waiters() {
    let mut router = checked(&["only"], "smart");
    let _asked: Vec<_> = (0..6).map(|_| router.ask("m")).collect();
    settle().await;
    assert_eq!(
        (router.in_flight()["only"], router.handle.status().depth),
        (1, 5)
    );
    router.handle.set_healthy(&router.endpoint("only"), true);
    settle().await;
    assert_eq!(
        (router.in_flight()["only"], router.handle.status().depth),
        (4, 2)
    );
    let _calls: Vec<_> = [router.call().await, router.call().await].into();
}

#[tokio::test(start_paused = true)]
async fn a_failed_check_rejects_the_waiters() {
    let router = checked(&["only"], "smart");
    let _hangs = router.ask("m");
    settle().await;
    let waits = router.ask("m");
    settle().await;
    assert_eq!(router.handle.status().depth, 1);
    router.handle.set_healthy(&router.endpoint("only"), false);
    assert_eq!(code(waits.await.unwrap()).await, "no_healthy_backend");
}

#[tokio::test(start_paused = true)]
async fn an_error_response_makes_an_endpoint_known() {
    for (answered, at_once) in [(true, 4), (false, 1)] {
        let routing = RoutingConfig::default().max_retries(0);
        let mut router = TestRouter::new([unchecked("a", 4, "m")], routing);
        let asked = router.ask("m");
        let mut answer = status(502);
        if !answered {
            answer.extensions_mut().insert(NoResponse::Unreachable);
        }
        router.call().await.answer(answer);
        asked.await.unwrap();
        let _held: Vec<_> = (0..5).map(|_| router.ask("m")).collect();
        settle().await;
        assert_eq!(router.in_flight()["a"], at_once);
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_without_a_check_uses_all_its_slots_at_once() {
    let mut router = TestRouter::new([endpoint("a", 4, &["m"])], RoutingConfig::default());
    let _asked: Vec<_> = (0..6).map(|_| router.ask("m")).collect();
    settle().await;
    let (in_flight, depth) = (router.in_flight()["a"], router.handle.status().depth);
    assert_eq!((in_flight, depth), (4, 2));
    let add = |endpoints: &mut Vec<_>| endpoints.push(endpoint("added", 4, &["m"]));
    router.handle.change_endpoints(add).unwrap();
    settle().await;
    let (in_flight, depth) = (router.in_flight()["added"], router.handle.status().depth);
    assert_eq!((in_flight, depth), (2, 0));
    let _calls: Vec<_> = [router.call().await, router.call().await].into();
}

/// Without its check, nothing is awaited any more.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_loses_its_check_uses_all_its_slots() {
    let router = checked(&["a"], "smart");
    let _asked: Vec<_> = (0..4).map(|_| router.ask("m")).collect();
    settle().await;
    assert_eq!(router.in_flight()["a"], 1);
    let uncheck = |endpoints: &mut Vec<Endpoint>| endpoints[0].health = None;
    router.handle.change_endpoints(uncheck).unwrap();
    settle().await;
    assert_eq!(router.in_flight()["a"], 4);
}

#[tokio::test(start_paused = true)]
async fn a_busy_new_endpoint_is_waited_for() {
    let routing = RoutingConfig::default()
        .fallbacks("m", ["n"])
        .fallback_when(FallbackWhen::Unavailable);
    let endpoints = [unchecked("a", 4, "m"), unchecked("b", 4, "n")];
    let mut router = TestRouter::new(endpoints, routing);
    router.ask("m");
    let first = router.call().await;
    router.ask("m");
    assert!(router.settled().await.is_none());
    first.ok();
    assert_eq!(router.call().await.endpoint(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_new_endpoint_without_answers_cannot_stand_in() {
    let routing = RoutingConfig::default().max_retries(0);
    let endpoints = [unchecked("mute", 1, "m"), unchecked("a", 4, "m")];
    let mut router = TestRouter::new(endpoints, routing);
    router.ask("m");
    let hangs = router.call().await;
    assert_eq!(hangs.endpoint(), "mute");
    fail(&mut router, "a", 6, || status(500)).await;
    assert!(router.endpoint("a").healthy());
}
