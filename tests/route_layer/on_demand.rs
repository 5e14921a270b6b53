//! A launcher that starts nothing.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};
use tower_triage::QueueConfig;
use tower_triage::endpoints::{HealthCheck, NoResponse, Registry};
use tower_triage::queue::Overflow;
use tower_triage::rejection::RetryAfter;
use tower_triage::route::RoutingConfig;
use tower_triage::route::on_demand::{
    CannotStart, EndpointEnd, InvalidOnDemand, OnDemand, Running, Watch,
};

use super::support::{Answer, TestRouter, code, endpoint, settle, status};

const SECOND: Duration = Duration::from_secs(1);

fn registry(names: &[&str]) -> Registry {
    let endpoints = names.iter().map(|name| endpoint(name, 1, &["m"]));
    Registry::new(endpoints.collect()).unwrap()
}

/// A router with these endpoints on demand, which all serve `m`.
fn router(names: &[&str]) -> (TestRouter, OnDemand) {
    router_of(registry(names))
}

fn router_of(endpoints: Registry) -> (TestRouter, OnDemand) {
    let exact = RetryAfter::default().jitter(0.0);
    let queue = QueueConfig::default().retry_after(exact);
    let router = TestRouter::with_queue([], RoutingConfig::default(), queue);
    let on_demand = router.handle.on_demand(endpoints).unwrap();
    (router, on_demand)
}

fn start(on_demand: &OnDemand, name: &str) -> Running {
    let starting = on_demand.start(name, None).unwrap();
    starting.ready(None).unwrap()
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_its_endpoint_is_started() {
    let (mut router, mut on_demand) = router(&["a", "b"]);
    let changed: BoxFuture<'_, bool> = Box::pin(on_demand.changed()); // so that a launcher may be a task
    assert!(changed.await);
    assert!(on_demand.waiting().is_empty());
    let answer = router.ask("m");
    assert!(on_demand.changed().await);
    let waiting = on_demand.waiting();
    let names = |it: &tower_triage::endpoints::EndpointRef| it.name().to_owned();
    let lane: Vec<_> = waiting[0].endpoints.iter().map(names).collect();
    assert_eq!(
        (waiting.len(), lane),
        (1, vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(
        waiting[0].to_start.as_ref().map(names).as_deref(),
        Some("a")
    );

    let starting = on_demand.start("a", Some(SECOND)).unwrap();
    assert!(on_demand.waiting()[0].to_start.is_none());
    starting.progress().set(0.5);
    assert_eq!(starting.endpoint().start_progress(), Some(0.5));
    assert!(router.settled().await.is_none());
    let url = http::Uri::from_static("http://127.0.0.1:1234");
    let running = starting.ready(url.clone()).unwrap();
    let call = router.call().await;
    assert_eq!(*call.decision.endpoint.url(), url);
    assert!(!running.close_if_idle());
    call.ok();
    assert_eq!(answer.await.unwrap().status(), 200);
    settle().await;
    assert_eq!(running.endpoint().usage().unwrap().idled, 1);
    assert!(running.close_if_idle());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_dropped_can_begin_again() {
    let (mut router, on_demand) = router(&["a"]);
    let answer = router.ask("m");
    settle().await;
    let starting = on_demand.start("a", None).unwrap();
    assert_eq!(
        on_demand.start("a", None).unwrap_err(),
        CannotStart::NotStopped
    );
    assert_eq!(
        on_demand.start("x", None).unwrap_err(),
        CannotStart::NoSuchEndpoint
    );
    drop(starting);
    let bad = http::Uri::from_static("/path");
    let starting = on_demand.start("a", None).unwrap();
    assert!(starting.ready(bad).is_err());
    let running = start(&on_demand, "a");
    assert_eq!(
        on_demand.start("a", None).unwrap_err(),
        CannotStart::NotStopped
    );
    router.call().await.ok();
    assert_eq!(answer.await.unwrap().status(), 200);
    drop(running);
    assert!(on_demand.start("a", None).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_holds_until_it_is_dropped() {
    let (mut router, on_demand) = router(&["a"]);
    let early = router.ask("m");
    settle().await;
    let starting = on_demand.start("a", None).unwrap();
    let refused = starting.failed(now() + 5 * SECOND);
    let early = early.await.unwrap();
    assert_eq!(early.headers()["retry-after"], "5");
    assert_eq!(code(early).await, "model_start_failed");
    refused.put_off(now() + 9 * SECOND);
    let late = router.ask("m").await.unwrap();
    assert_eq!(late.headers()["retry-after"], "9");
    drop(refused);
    let waits = router.ask("m");
    settle().await;
    let _other = on_demand.refuse("a", now()).unwrap();
    assert_eq!(code(waits.await.unwrap()).await, "model_start_failed");
    let _running = start(&on_demand, "a");
    let served = router.ask("m");
    router.call().await.ok(); // a refusal counts only while the endpoint is closed
    assert_eq!(served.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn waiters_can_be_rejected_at_once() {
    let (router, on_demand) = router(&["a"]);
    let answer = router.ask("m");
    settle().await;
    on_demand.reject_waiting(&["a"]);
    assert_eq!(code(answer.await.unwrap()).await, "model_unloaded");
    let waits = router.ask("m");
    settle().await;
    assert!(!waits.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_is_gone_leaves_no_waiter() {
    let (mut router, on_demand) = router(&["a", "b"]);
    let running = start(&on_demand, "b");
    let served = router.ask("m");
    let call = router.call().await;
    let waits = router.ask("m");
    settle().await;
    drop(on_demand);
    settle().await;
    assert!(!waits.is_finished(), "one still runs");
    drop(running);
    assert_eq!(code(waits.await.unwrap()).await, "no_healthy_backend");
    call.ok();
    assert_eq!(served.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn events_that_are_watched_wake_the_launcher() {
    let (mut router, mut on_demand) = router(&["a"]);
    let running = start(&on_demand, "a");
    assert!(on_demand.changed().await);
    let has_changed = async |router: &mut TestRouter, on_demand: &mut OnDemand| {
        let answer = router.ask("m");
        router.call().await.ok();
        answer.await.unwrap();
        settle().await;
        tokio::select! {
            is_there = on_demand.changed() => is_there,
            () = sleep(SECOND) => false,
        }
    };
    assert!(!has_changed(&mut router, &mut on_demand).await);
    on_demand.watch(Watch::default().idle(true));
    assert!(has_changed(&mut router, &mut on_demand).await);
    on_demand.watch(Watch::default());
    assert!(!has_changed(&mut router, &mut on_demand).await);
    drop(running);
}

/// The answer of a server that ended meanwhile.
fn no_response() -> Answer {
    let mut failed = status(502);
    failed.extensions_mut().insert(NoResponse::Reset);
    failed
}

/// A failed answer of the endpoint to a request.
async fn fail(router: &mut TestRouter) {
    let answer = router.ask("m");
    router.call().await.answer(no_response());
    answer.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_closes_the_endpoint_until_it_is_dropped() {
    let (mut router, mut on_demand) = router(&["a"]);
    let running = start(&on_demand, "a");
    fail(&mut router).await;
    assert!(running.suspicion().is_none(), "they are not watched");
    on_demand.watch(Watch::default().suspicions(true));
    fail(&mut router).await;
    let suspicion = running.suspicion().unwrap();
    let answer = router.ask("m");
    assert!(router.settled().await.is_none());
    for _ in 0..3 {
        on_demand.changed().await;
        assert!(router.settled().await.is_none());
        router.handle.gate().capacity_changed();
        _ = router.ask("m"); // wakes the launcher
    }
    drop(suspicion);
    router.call().await.ok();
    assert_eq!(answer.await.unwrap().status(), 200);
}

/// A launcher that looks and takes no suspicion.
async fn look(on_demand: &mut OnDemand) {
    while on_demand.changed().await {}
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_that_is_not_taken_ends_by_itself() {
    let (mut router, mut on_demand) = router(&["a"]);
    let running = start(&on_demand, "a");
    on_demand.watch(Watch::default().suspicions(true));
    let breaks = router.ask("m");
    let broken = router.call().await;
    let waits = router.ask("m");
    settle().await;
    assert!(on_demand.changed().await);
    broken.answer(no_response());
    breaks.await.unwrap();
    let served = timeout(SECOND, async {
        tokio::select! {
            () = look(&mut on_demand) => unreachable!("the router is there"),
            call = router.call() => call.ok(),
        }
    });
    served.await.expect("the suspicion ends");
    assert_eq!(waits.await.unwrap().status(), 200);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_that_is_held_outlives_one_that_is_not_taken() {
    let endpoints = Registry::new(vec![endpoint("a", 2, &["m"])]).unwrap();
    let (mut router, mut on_demand) = router_of(endpoints);
    let running = start(&on_demand, "a");
    on_demand.watch(Watch::default().suspicions(true));
    let answers = [(); 2].map(|()| router.ask("m"));
    let calls = [router.call().await, router.call().await];
    let waits = router.ask("m");
    settle().await;
    let mut suspicions = Vec::new();
    for (call, answer) in calls.into_iter().zip(answers) {
        call.answer(no_response());
        answer.await.unwrap();
        if suspicions.is_empty() {
            suspicions.extend(running.suspicion());
        }
    }
    assert!(timeout(SECOND, look(&mut on_demand)).await.is_err());
    assert!(router.settled().await.is_none());
    drop(suspicions);
    router.call().await.ok();
    assert_eq!(waits.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_does_not_outlive_the_launcher() {
    for is_before in [true, false] {
        let (mut router, on_demand) = router(&["a"]);
        let running = start(&on_demand, "a");
        on_demand.watch(Watch::default().suspicions(true));
        let mut on_demand = Some(on_demand);
        if is_before {
            fail(&mut router).await;
        }
        drop(on_demand.take());
        if !is_before {
            fail(&mut router).await;
        }
        let answer = router.ask("m");
        let call = timeout(SECOND, router.call()).await;
        call.expect("the server still runs").ok();
        assert_eq!(answer.await.unwrap().status(), 200);
        drop(running);
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_closed_or_starting_as_its_launcher_goes_may_still_open() {
    let (mut router, on_demand) = router(&["a", "b"]);
    let running = start(&on_demand, "a");
    running.close();
    let starting = on_demand.start("b", None).unwrap();
    drop(on_demand);
    let answer = router.ask("m");
    settle().await;
    assert!(!answer.is_finished());
    drop(starting);
    settle().await;
    assert!(!answer.is_finished(), "the other one still runs");
    running.reopen();
    router.call().await.ok();
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_changes_nothing_wakes_no_launcher() {
    let (router, mut on_demand) = router(&["a"]);
    let running = start(&on_demand, "a");
    assert!(on_demand.changed().await);
    let calls: [fn(&Running); 4] = [Running::reopen, Running::close, Running::close, |running| {
        assert!(running.close_if_idle())
    }];
    let mut woken = Vec::new();
    for call in calls {
        call(&running);
        woken.push(timeout(SECOND, on_demand.changed()).await.is_ok());
    }
    assert_eq!(woken, [false, true, false, false]);
    drop(router);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_dropped_wakes_the_launcher() {
    let (router, mut on_demand) = router(&["a"]);
    let _waits = router.ask("m");
    settle().await;
    let starting = on_demand.start("a", None).unwrap();
    while timeout(SECOND, on_demand.changed()).await.is_ok() {}
    drop(starting);
    assert!(timeout(SECOND, on_demand.changed()).await.is_ok());
    assert!(on_demand.waiting()[0].to_start.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_end_closes_the_endpoint_for_the_next_start() {
    let (mut router, on_demand) = router(&["a"]);
    let running = start(&on_demand, "a");
    running.ended(EndpointEnd::Killed);
    let answer = router.ask("m");
    assert!(router.settled().await.is_none());
    let _running = start(&on_demand, "a");
    router.call().await.ok();
    assert_eq!(answer.await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_keep_their_names_keep_their_states() {
    let (router, on_demand) = router(&["a", "b"]);
    let url = http::Uri::from_static("http://127.0.0.1:1234");
    let starting = on_demand.start("a", None).unwrap();
    let running = starting.ready(url.clone()).unwrap();
    on_demand.set_endpoints(registry(&["a", "c"])).unwrap();
    assert_eq!(
        *running.endpoint().url(),
        url,
        "its configured URL is the same"
    );
    assert_eq!(
        on_demand.start("a", None).unwrap_err(),
        CannotStart::NotStopped
    );
    assert!(on_demand.start("c", None).is_ok());
    assert_eq!(
        on_demand.start("b", None).unwrap_err(),
        CannotStart::NoSuchEndpoint
    );
    let others = Registry::new(vec![endpoint("x", 1, &["m"])]).unwrap();
    let rules = RoutingConfig::default().rules().unwrap();
    let changes = on_demand
        .replace_all(registry(&["a"]), others, rules)
        .unwrap();
    assert_eq!(changes.added, ["x"]);
    assert_eq!(router.handle.endpoints().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_nothing_would_start_are_an_error() {
    let (router, on_demand) = router(&["a"]);
    let error = |endpoint| {
        let registry = Registry::new(vec![endpoint]).unwrap();
        router.handle.on_demand(registry).unwrap_err()
    };
    let taken = InvalidOnDemand::NameTaken {
        endpoint: "a".into(),
    };
    assert_eq!(error(endpoint("a", 1, &["m"])), taken);
    let checked = endpoint("b", 1, &["m"]).health(HealthCheck::new("/health"));
    assert!(matches!(
        error(checked),
        InvalidOnDemand::HealthCheck { .. }
    ));
    let queue = QueueConfig::default().overflow(Overflow::Shed);
    let shedding = TestRouter::with_queue([], RoutingConfig::default(), queue);
    let shed = shedding.handle.on_demand(registry(&["a"])).unwrap_err();
    assert_eq!(shed, InvalidOnDemand::Sheds);
    drop(router);
    assert!(on_demand.router().is_none());
    assert_eq!(
        on_demand.set_endpoints(registry(&["a"])),
        Err(InvalidOnDemand::NoRouter)
    );
}

#[tokio::test(start_paused = true)]
async fn the_names_of_a_launcher_that_is_gone_are_free() {
    let (mut router, on_demand) = router(&["a", "b"]);
    let running = start(&on_demand, "b");
    let served = router.ask("m");
    let call = router.call().await;
    drop(on_demand);
    let on_demand = router.handle.on_demand(registry(&["a"])).unwrap();
    assert_eq!(router.handle.endpoints().len(), 2, "only its own names");
    assert!(on_demand.start("a", None).is_ok());
    drop(on_demand);

    let routing = RoutingConfig::default;
    let changes = router.handle.replace(registry(&["a", "b"]), routing());
    assert_eq!(changes.unwrap().changed, ["a", "b"]);
    let endpoints = router.handle.endpoints();
    let mut endpoints = endpoints.iter();
    assert!(
        endpoints.all(|it| it.usage().is_none()),
        "they run by themselves"
    );
    call.ok(); // an endpoint that has left finishes its requests
    assert_eq!(served.await.unwrap().status(), 200);
    drop(running);
    let changes = router.handle.replace(Registry::default(), routing());
    assert_eq!(changes.unwrap().removed, ["a", "b"]);
    assert!(router.handle.endpoints().is_empty());
}
