//! New endpoints, which have neither answered a request nor passed a check.

use tower_triage::endpoints::{FallbackWhen, HealthCheck, NoResponse};
use tower_triage::route::{RoutingConfig, StrategyChoice};

use super::support::{TestRouter, code, endpoint, fail, settle, status};

/// `names` with four slots each for `m`, all with a check that has not run yet.
fn checked(names: &[&str], strategy: &str) -> TestRouter {
    let endpoints = names.iter().map(|name| {
        let check = HealthCheck::default();
        endpoint(name, 4, &["m"]).health(check)
    });
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
    for check in [None, Some(HealthCheck::default())] {
        let mut endpoints = ["a", "b"].map(|name| endpoint(name, 4, &["m"]));
        endpoints
            .iter_mut()
            .for_each(|it| it.health = check.clone());
        let mut router = TestRouter::new(endpoints, RoutingConfig::default());
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
        let mut router = TestRouter::new([endpoint("a", 4, &["m"])], routing);
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

/// It has no check, so only a request can show that it works.
#[tokio::test(start_paused = true)]
async fn a_new_endpoint_without_check_gets_single_requests() {
    let routing = RoutingConfig::default().strategy(StrategyChoice::RoundRobin);
    let mut router = TestRouter::new([endpoint("a", 4, &["m"])], routing);
    let asked = router.ask("m");
    router.call().await.ok();
    asked.await.unwrap();
    let change = |endpoints: &mut Vec<_>| endpoints.push(endpoint("mute", 4, &["m"]));
    router.handle.change_endpoints(change).unwrap();
    let _held: Vec<_> = (0..4).map(|_| router.ask("m")).collect();
    settle().await;
    let in_flight = router.in_flight();
    assert_eq!((in_flight["a"], in_flight["mute"]), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_busy_new_endpoint_is_waited_for() {
    let routing = RoutingConfig::default()
        .fallbacks("m", ["n"])
        .fallback_when(FallbackWhen::Unavailable);
    let endpoints = [endpoint("a", 4, &["m"]), endpoint("b", 4, &["n"])];
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
    let endpoints = [endpoint("mute", 1, &["m"]), endpoint("a", 4, &["m"])];
    let mut router = TestRouter::new(endpoints, routing);
    router.ask("m");
    let hangs = router.call().await;
    assert_eq!(hangs.endpoint(), "mute");
    fail(&mut router, "a", 6, || status(500)).await;
    assert!(router.endpoint("a").healthy());
}
