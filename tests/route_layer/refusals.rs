//! Refusals: answers of endpoints that are too full for a request.

use std::time::Duration;

use http::Request;
use http_body_util::Full;
use tokio::time::{Instant, advance};
use tower_triage::QueueConfig;
use tower_triage::endpoints::{ErrorInBody, ModelRoom};
use tower_triage::route::{AtMostOnce, RoutingConfig};

use super::support::{
    Answer, Routed, TestRouter, code, endpoint, header, settle, status, two, two_routed,
};

const MS: Duration = Duration::from_millis(1);

/// A 503 that asks for a pause of so many seconds.
fn full(seconds: u64) -> Answer {
    let mut answer = status(503);
    answer.headers_mut().insert("retry-after", seconds.into());
    answer
}

fn overloaded() -> Answer {
    let mut answer = status(200);
    answer.extensions_mut().insert(ErrorInBody::Overloaded);
    answer
}

/// All forms of a refusal.
fn refusals() -> [Answer; 4] {
    [full(1), status(429), status(529), overloaded()]
}

/// Asks as `tenant`.
fn ask_as(router: &TestRouter, tenant: &str) -> tokio::task::JoinHandle<Routed> {
    let request = Request::builder().header("x-tenant-id", tenant);
    router.send(request.body(Full::from(r#"{"model":"m"}"#)).unwrap())
}

fn one(slots: u32) -> TestRouter {
    TestRouter::new([endpoint("a", slots, &["m"])], RoutingConfig::default())
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_goes_elsewhere_without_a_retry() {
    for refusal in refusals() {
        let mut router = two_routed(RoutingConfig::default().max_retries(0));
        let asked = router.ask("m");
        let first = router.call().await;
        let refused_by = first.endpoint().to_owned();
        first.answer(refusal);
        let second = router.call().await;
        assert_ne!(second.endpoint(), refused_by);
        second.ok();
        assert_eq!(asked.await.unwrap().status(), 200);
        assert_eq!(router.endpoint(&refused_by).refusals(), 1);
        assert_eq!(router.endpoint(&refused_by).retries(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_did_not_run_so_it_may_go_elsewhere() {
    let mut router = two();
    let request = Request::builder().extension(AtMostOnce);
    let asked = router.send(request.body(Full::from(r#"{"model":"m"}"#)).unwrap());
    router.call().await.answer(status(529));
    router.call().await.ok();
    assert_eq!(asked.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn an_error_in_a_success_may_have_run_the_request() {
    let mut router = two();
    let request = Request::builder().extension(AtMostOnce);
    let asked = router.send(request.body(Full::from(r#"{"model":"m"}"#)).unwrap());
    router.call().await.answer(overloaded());
    assert!(router.settled().await.is_none());
    assert_eq!(asked.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_again_and_again_lets_others_go_first() {
    let mut router = one(1);
    let poison = ask_named(&router, "poison", "normal").await;
    let call = router.call().await;
    let other = ask_named(&router, "other", "normal").await;
    call.answer(full(1));
    let mut refused = 1;
    loop {
        let call = router.call().await;
        if call.headers["x-name"] == "other" {
            call.ok();
            break;
        }
        call.answer(full(1));
        refused += 1;
        assert!(refused < 10, "the other request is never served");
    }
    assert_eq!((refused, other.await.unwrap().status().as_u16()), (4, 200));
    poison.abort();
}

#[tokio::test(start_paused = true)]
async fn several_requests_that_are_always_refused_let_others_go_first() {
    let mut router = one(1);
    let mut poison = vec![ask_named(&router, "poison", "normal").await];
    let first = router.call().await;
    for _ in 0..3 {
        poison.push(ask_named(&router, "poison", "normal").await);
    }
    let other = ask_named(&router, "other", "normal").await;
    first.answer(full(1));
    let begin = Instant::now();
    loop {
        let call = router.call().await;
        if call.headers["x-name"] == "other" {
            call.ok();
            break;
        }
        call.answer(full(1));
    }
    assert_eq!(other.await.unwrap().status(), 200);
    let took = begin.elapsed();
    assert!(took < 25_000 * MS, "{took:?}");
    poison.iter().for_each(|it| it.abort());
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_without_an_end_of_its_wait_gets_the_refusal_at_last() {
    let queue = QueueConfig::default().max_wait(None);
    let endpoints = [endpoint("a", 1, &["m"])];
    let mut router = TestRouter::with_queue(endpoints, RoutingConfig::default(), queue);
    let mut asked = router.ask("m");
    let mut refused = 0;
    let answer = loop {
        tokio::select! {
            answer = &mut asked => break answer.unwrap(),
            call = router.call() => call.answer(full(1)),
        }
        refused += 1;
        assert!(refused < 100, "it is refused for ever");
    };
    assert_eq!((answer.status().as_u16(), refused), (503, 17));
}

#[tokio::test(start_paused = true)]
async fn a_tenants_refusal_after_a_failure_is_its_own_too() {
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 4, &["m"])];
    let mut router = TestRouter::new(endpoints, RoutingConfig::default());
    let honest = [ask_as(&router, "honest"), ask_as(&router, "honest")];
    let (at_a, at_b) = (router.call().await, router.call().await);
    assert_eq!((at_a.endpoint(), at_b.endpoint()), ("a", "b"));
    at_a.ok();
    at_b.ok();
    futures_util::future::join_all(honest).await;
    let spent = ask_as(&router, "spent");
    router.call().await.answer(status(503));
    let second = router.call().await;
    assert_eq!(second.endpoint(), "b");
    second.answer(full(1));
    settle().await;
    assert_eq!(router.endpoint("b").limit(), 4);
    spent.abort();
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_keeps_its_place_in_line() {
    for refusal in refusals() {
        let mut router = one(2);
        let mut asked = Vec::new();
        for name in ["first", "refused", "third"] {
            let request = Request::builder().header("x-name", name);
            asked.push(router.send(request.body(Full::from(r#"{"model":"m"}"#)).unwrap()));
            settle().await;
            advance(MS).await;
        }
        let (first, second) = (router.call().await, router.call().await);
        second.answer(refusal);
        settle().await;
        assert_eq!(router.endpoint("a").limit(), 1, "it took one request");
        assert_eq!(router.handle.status().depth, 2);
        first.ok();
        drop(asked.remove(0).await.unwrap());
        for name in ["refused", "third"] {
            let call = router.call().await;
            assert_eq!(call.headers["x-name"], name);
            call.ok();
            assert_eq!(asked.remove(0).await.unwrap().status(), 200);
        }
    }
}

/// A router with one slot and one place, for requests with names.
fn one_place() -> TestRouter {
    let queue = QueueConfig::default().max_size(1);
    let endpoints = [endpoint("a", 1, &["m"])];
    TestRouter::with_queue(endpoints, RoutingConfig::default(), queue)
}

async fn ask_named(
    router: &TestRouter,
    name: &str,
    priority: &str,
) -> tokio::task::JoinHandle<Routed> {
    let request = Request::builder()
        .header("x-name", name)
        .header("x-priority", priority);
    let asked = router.send(request.body(Full::from(r#"{"model":"m"}"#)).unwrap());
    settle().await;
    advance(MS).await;
    asked
}

/// A router with one slot, and one place for its model.
fn one_place_for_its_model() -> TestRouter {
    let routing = RoutingConfig::default().room("m", ModelRoom::default().max_size(1));
    TestRouter::new([endpoint("a", 1, &["m"])], routing)
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_keeps_its_place_in_a_full_room() {
    for mut router in [one_place(), one_place_for_its_model()] {
        for refusal in refusals() {
            let first = ask_named(&router, "first", "normal").await;
            let call = router.call().await;
            let second = ask_named(&router, "second", "normal").await;
            call.answer(refusal);
            settle().await;
            assert_eq!(router.handle.status().depth, 2);
            let third = ask_named(&router, "third", "normal").await;
            assert_eq!(code(third.await.unwrap()).await, "queue_full");
            for (asked, name) in [(first, "first"), (second, "second")] {
                let call = router.call().await;
                assert_eq!(call.headers["x-name"], name);
                call.ok();
                assert_eq!(asked.await.unwrap().status(), 200);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_leaves_its_slot_to_others_comes_back_within_the_bound_of_the_room() {
    let mut router = one_place();
    let honest = ask_as(&router, "honest");
    router.call().await.ok();
    honest.await.unwrap();
    let mut asked = Vec::new();
    for _ in 0..4 {
        asked.push(ask_as(&router, "spent"));
        router.call().await.answer(full(1));
        settle().await;
        assert_eq!(router.endpoint("a").limit(), 1, "the refusals are its own");
        assert!(router.handle.status().depth <= 1);
    }
    for spent in asked {
        spent.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_displaced_after_those_that_came_later() {
    let mut router = one_place();
    let first = ask_named(&router, "first", "normal").await;
    let call = router.call().await;
    let second = ask_named(&router, "second", "normal").await;
    call.answer(full(1));
    settle().await;
    let urgent = ask_named(&router, "urgent", "high").await;
    assert_eq!(code(second.await.unwrap()).await, "displaced");
    for (asked, name) in [(urgent, "urgent"), (first, "first")] {
        let call = router.call().await;
        assert_eq!(call.headers["x-name"], name);
        call.ok();
        assert_eq!(asked.await.unwrap().status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_no_failures() {
    for refusal in [|| full(1), || status(429), || status(529), overloaded] {
        let mut router = two();
        let asked: Vec<_> = (0..20).map(|_| router.ask("m")).collect();
        for _ in 0..40 {
            router.call().await.answer(refusal());
        }
        for name in ["a", "b"] {
            let endpoint = router.endpoint(name);
            assert!(endpoint.healthy(), "{name}");
            assert_eq!(endpoint.failures(), 0);
        }
        asked.iter().for_each(|asked| asked.abort());
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_full_is_asked_again_long_before_its_retry_after() {
    let mut router = one(1);
    let begun = Instant::now();
    let asked = router.ask("m");
    for _ in 0..3 {
        router.call().await.answer(full(1));
    }
    router.call().await.ok();
    assert_eq!(asked.await.unwrap().status(), 200);
    assert!(begun.elapsed() < 100 * MS, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_longer_an_endpoint_refuses_the_longer_it_is_left_alone() {
    let mut router = one(4);
    let asked: Vec<_> = (0..8).map(|_| router.ask("m")).collect();
    let begun = Instant::now();
    let mut calls = 0;
    while begun.elapsed() < Duration::from_secs(20) {
        router.call().await.answer(full(1));
        calls += 1;
    }
    assert!((10..50).contains(&calls), "{calls}");
    asked.iter().for_each(|asked| asked.abort());
}

#[tokio::test(start_paused = true)]
async fn the_limit_comes_back_when_an_endpoint_takes_more() {
    let mut router = one(4);
    let asked: Vec<_> = (0..4).map(|_| router.ask("m")).collect();
    let mut running = Vec::new();
    for nth in 0..4 {
        match nth {
            0 | 1 => running.push(router.call().await),
            _ => router.call().await.answer(full(1)),
        }
    }
    settle().await;
    assert_eq!(router.endpoint("a").limit(), 2);
    while running.len() < 4 {
        running.push(router.call().await); // the next steps are taken
    }
    running.into_iter().for_each(|call| call.ok());
    for asked in asked {
        assert_eq!(asked.await.unwrap().status(), 200);
    }
    assert_eq!(router.endpoint("a").limit(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_beyond_the_wait_of_a_request_is_passed_on() {
    for refusal in [
        || full(60),
        || full(u64::MAX),
        || {
            let mut answer = status(429);
            answer.extensions_mut().insert(ErrorInBody::QuotaExceeded);
            answer
        },
    ] {
        let mut router = two();
        let asked = router.ask("m");
        let first = router.call().await;
        let refused_by = first.endpoint().to_owned();
        first.answer(refusal());
        let second = router.call().await;
        assert_ne!(second.endpoint(), refused_by);
        second.answer(refusal());
        assert!(router.settled().await.is_none());
        assert_eq!(asked.await.unwrap().status(), refusal().status());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_whose_wait_is_over_gets_the_refusal() {
    let queue = QueueConfig::default().max_wait(Duration::from_secs(5));
    let endpoints = [endpoint("a", 2, &["m"])];
    let mut router = TestRouter::with_queue(endpoints, RoutingConfig::default(), queue);
    let [running, refused] = [router.ask("m"), router.ask("m")];
    let (_first, second) = (router.call().await, router.call().await);
    second.answer(full(1));
    let begun = Instant::now();
    let mut calls = tokio::spawn(async move {
        loop {
            router.call().await.answer(full(1));
        }
    });
    let answer = refused.await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), header(&answer, "retry-after")),
        (503, "1")
    );
    // Not later than the endpoint could be asked again.
    assert!(
        (4..=5).contains(&begun.elapsed().as_secs()),
        "{:?}",
        begun.elapsed()
    );
    running.abort();
    calls.abort();
    _ = (&mut calls).await;
}

#[tokio::test(start_paused = true)]
async fn one_tenants_refusals_leave_the_slots_to_others() {
    let mut router = one(4);
    let served = ask_as(&router, "honest");
    router.call().await.ok();
    served.await.unwrap();
    let refused = ask_as(&router, "spent");
    router.call().await.answer(full(1));
    settle().await;
    assert_eq!(router.endpoint("a").limit(), 4);
    assert!(
        router.settled().await.is_none(),
        "never at once to the same endpoint"
    );
    let others: Vec<_> = (0..4).map(|_| ask_as(&router, "honest")).collect();
    for _ in 0..4 {
        router.call().await.ok();
    }
    for other in others {
        assert_eq!(other.await.unwrap().status(), 200);
    }
    router.call().await.ok(); // after its pause
    assert_eq!(refused.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_several_tenants_are_the_endpoints() {
    let mut router = one(4);
    let served = ask_as(&router, "one");
    router.call().await.ok();
    served.await.unwrap();
    let _refused = [ask_as(&router, "two"), ask_as(&router, "three")];
    for _ in 0..2 {
        router.call().await.answer(full(1));
    }
    settle().await;
    assert!(router.endpoint("a").limit() < 4);
}

#[tokio::test(start_paused = true)]
async fn without_a_waiting_room_a_refusal_is_passed_on() {
    let queue = QueueConfig::default().max_size(0);
    let endpoints = [endpoint("a", 1, &["m"])];
    let mut router = TestRouter::with_queue(endpoints, RoutingConfig::default(), queue);
    let asked = router.ask("m");
    router.call().await.answer(full(1));
    let answer = asked.await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), header(&answer, "retry-after")),
        (503, "1")
    );
}
