//! Endpoints that come and go while requests wait for them.

use http::{Request, StatusCode};
use tower_triage::QueueConfig;
use tower_triage::endpoints::{Endpoint, FallbackWhen};
use tower_triage::queue::Streaming;
use tower_triage::route::RoutingConfig;

use super::support::{TestRouter, code, endpoint, header, settle};

#[tokio::test(start_paused = true)]
async fn waiters_are_rejected_when_the_last_endpoint_leaves() {
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    router.ask("m");
    let running = router.call().await;
    let waiting: Vec<_> = (0..50).map(|_| router.ask("m")).collect();
    settle().await;
    assert_eq!(router.handle.status().depth, 50);
    router.handle.set_healthy(&router.endpoint("a"), false);
    for waiter in waiting {
        assert_eq!(code(waiter.await.unwrap()).await, "no_healthy_backend");
    }
    assert_eq!(router.handle.status().depth, 0);
    running.ok();
}

#[tokio::test(start_paused = true)]
async fn a_router_sheds_with_the_status_of_overload_alone() {
    let endpoints = [endpoint("a", 1, &["m"])];
    let queue = QueueConfig::shed(1).overload_status(StatusCode::TOO_MANY_REQUESTS);
    let mut router = TestRouter::with_queue(endpoints, RoutingConfig::default(), queue);
    router.ask("m");
    let running = router.call().await;
    let refused = router.ask("m").await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), header(&refused, "retry-after")),
        (429, "1")
    );
    assert_eq!(code(refused).await, "overloaded");
    assert_eq!(router.handle.status().stats.full, 1);

    router.handle.set_healthy(&router.endpoint("a"), false);
    let unhealthy = router.ask("m").await.unwrap();
    assert_eq!(unhealthy.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(code(unhealthy).await, "no_healthy_backend");
    running.ok();
}

#[tokio::test(start_paused = true)]
async fn waiters_take_the_fallback_when_the_last_endpoint_leaves() {
    let routing = RoutingConfig::default().fallbacks("m", ["n"]);
    let mut router = TestRouter::new(
        [endpoint("a", 1, &["m"]), endpoint("b", 3, &["n"])],
        routing,
    );
    router.ask("m");
    let running = router.call().await;
    assert_eq!(running.endpoint(), "a");
    let waiting: Vec<_> = (0..3).map(|_| router.ask("m")).collect();
    assert!(
        router.settled().await.is_none(),
        "they wait for a busy primary"
    );
    router.handle.set_healthy(&router.endpoint("a"), false);
    for _ in 0..3 {
        let call = router.call().await;
        assert_eq!(call.endpoint(), "b");
        call.ok();
    }
    for waiter in waiting {
        assert_eq!(header(&waiter.await.unwrap(), "x-triage-model"), "n");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_fallback_is_taken_only_if_configured() {
    for (when, to) in [
        (FallbackWhen::Unavailable, None),
        (FallbackWhen::Busy, Some("b")),
    ] {
        let routing = RoutingConfig::default()
            .fallbacks("m", ["n"])
            .fallback_when(when);
        let mut router = TestRouter::new(
            [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])],
            routing,
        );
        router.ask("m");
        let _busy = router.call().await;
        router.ask("m");
        let call = router.settled().await;
        assert_eq!(call.as_ref().map(|call| call.endpoint()), to, "{when:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_two_models_takes_the_first_free_slot() {
    let routing = RoutingConfig::default()
        .fallbacks("m", ["n"])
        .fallback_when(FallbackWhen::Busy);
    let mut router = TestRouter::new(
        [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])],
        routing,
    );
    router.ask("m");
    let _primary = router.call().await;
    router.ask("m");
    let fallback = router.call().await;
    router.ask("m");
    assert!(router.settled().await.is_none());
    fallback.ok();
    assert_eq!(router.call().await.endpoint(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_new_or_changed_endpoint_serves_waiters() {
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    router.handle.set_healthy(&router.endpoint("a"), true);
    router.ask("m");
    let _busy = router.call().await;
    (0..3).for_each(|_| _ = router.ask("m"));
    settle().await;
    let handle = &router.handle;
    let changes = handle
        .change_endpoints(|endpoints| endpoints.push(endpoint("b", 1, &["m"])))
        .unwrap();
    assert_eq!(changes.added, ["b"]);
    let at_b = router.call().await;
    assert_eq!(at_b.endpoint(), "b");
    let handle = &router.handle;
    let changes = handle
        .change_endpoints(|endpoints| endpoints[0].max_concurrent = 2)
        .unwrap();
    assert_eq!(changes.changed, ["a"]);
    let at_a = router.call().await;
    assert_eq!(at_a.endpoint(), "a");
    router.handle.set_limit(&router.endpoint("b"), 2);
    router.handle.set_healthy(&router.endpoint("b"), true);
    assert_eq!(router.call().await.endpoint(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_limit_set_at_the_endpoint_serves_waiters_at_once() {
    let mut router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    router.handle.set_healthy(&router.endpoint("a"), true);
    router.ask("m");
    let _busy = router.call().await;
    router.ask("m");
    assert!(router.settled().await.is_none());
    router.endpoint("a").set_limit(2);
    let second = router.settled().await;
    assert_eq!(second.as_ref().map(|call| call.endpoint()), Some("a"));

    // An endpoint that is added later notifies the gate, too.
    let handle = &router.handle;
    let added = handle.change_endpoints(|all| all.push(endpoint("b", 1, &["n"])));
    assert_eq!(added.unwrap().added, ["b"]);
    router.endpoint("b").set_limit(0);
    router.ask("n");
    assert!(router.settled().await.is_none());
    router.endpoint("b").set_limit(1);
    let third = router.settled().await;
    assert_eq!(third.as_ref().map(|call| call.endpoint()), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_without_slots_serves_once_it_has_some() {
    let slots = |limited: Endpoint| move |all: &mut Vec<Endpoint>| all[0] = limited;
    let none = || endpoint("a", 0, &["m"]);
    for some in [endpoint("a", 1, &["m"]), none().limit(Default::default())] {
        let queue = QueueConfig::default().max_size(1);
        let mut router = TestRouter::with_queue([none()], RoutingConfig::default(), queue);
        let waits = router.ask("m");
        assert!(router.settled().await.is_none());
        assert_eq!(code(router.ask("m").await.unwrap()).await, "queue_full");

        router.handle.change_endpoints(slots(some.clone())).unwrap();
        let call = router.settled().await;
        call.expect("it has a slot").ok();
        assert_eq!(waits.await.unwrap().status(), StatusCode::OK);
        router.ask("m");
        router.settled().await.expect("it still has a slot").ok();

        router.handle.change_endpoints(slots(none())).unwrap();
        let waits = router.ask("m");
        assert!(router.settled().await.is_none());
        assert_eq!(code(waits.await.unwrap()).await, "queue_timeout");
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_without_slots_leaves_requests_to_others() {
    let routing = RoutingConfig::default()
        .fallbacks("m", ["n"])
        .fallback_when(FallbackWhen::Busy);
    for other in [endpoint("b", 1, &["m"]), endpoint("b", 1, &["n"])] {
        let none = endpoint("a", 0, &["m"]).priority(0);
        let mut router = TestRouter::new([none, other], routing.clone());
        router.ask("m");
        let call = router.settled().await;
        assert_eq!(call.as_ref().map(|call| call.endpoint()), Some("b"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_endpoint_finishes_what_it_has() {
    let mut router = TestRouter::new(
        [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])],
        RoutingConfig::default(),
    );
    let asked = router.ask("m");
    let running = router.call().await;
    let waits = router.ask("m");
    settle().await;
    let changes = router
        .handle
        .change_endpoints(|endpoints| _ = endpoints.remove(0));
    assert_eq!(changes.unwrap().removed, ["a"]);
    assert_eq!(code(waits.await.unwrap()).await, "model_not_found");
    assert_eq!(router.handle.status().running, 1);
    running.ok();
    assert_eq!(asked.await.unwrap().status(), StatusCode::OK);
    assert_eq!(router.handle.status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_draining_endpoint_gets_nothing_new() {
    let mut router = TestRouter::new(
        [endpoint("a", 2, &["m"]), endpoint("b", 2, &["m"])],
        RoutingConfig::default(),
    );
    router.handle.set_draining(&router.endpoint("a"), true);
    router.ask("m");
    let at_b = router.call().await;
    assert_eq!(at_b.endpoint(), "b");
    assert!(router.endpoint("a").healthy());
    router.handle.set_draining(&router.endpoint("a"), false);
    router.ask("m");
    assert_eq!(router.call().await.endpoint(), "a");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_left_draining_comes_back_in_service() {
    let a = || endpoint("a", 1, &["m"]);
    let mut router = TestRouter::new([a()], RoutingConfig::default());
    router.handle.set_draining(&router.endpoint("a"), true);
    let removed = router.handle.change_endpoints(Vec::clear);
    assert_eq!(removed.unwrap().removed, ["a"]);
    let added = router
        .handle
        .change_endpoints(|endpoints| endpoints.push(a()));
    assert_eq!(added.unwrap().added, ["a"]);
    assert!(!router.endpoint("a").draining());
    router.ask("m");
    assert_eq!(router.call().await.endpoint(), "a");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_change_changes_nothing() {
    let router = TestRouter::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    let twice = router
        .handle
        .change_endpoints(|endpoints| endpoints.push(endpoint("a", 1, &[])));
    assert!(twice.unwrap_err().to_string().contains("\"a\""));
    let registry = (*router.handle.registry()).clone();
    let circle = RoutingConfig::default().alias("x", "y").alias("y", "x");
    assert!(router.handle.replace(registry, circle).is_err());
    assert_eq!(router.handle.endpoints().len(), 1);
    assert!(router.handle.routing().aliases.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rejected_stream_has_a_code_of_its_own() {
    let queue = QueueConfig::default().streaming(Streaming::Reject);
    let routing = RoutingConfig::default();
    let mut router = TestRouter::with_queue([endpoint("a", 1, &["m"])], routing, queue);
    router.ask("m");
    let running = router.call().await;
    let by_body = Request::new(r#"{"model":"m","stream":true}"#.into());
    let mut by_header = Request::new(r#"{"model":"m"}"#.into());
    let accept = http::HeaderValue::from_static("text/event-stream");
    by_header.headers_mut().insert(http::header::ACCEPT, accept);
    for stream in [by_body, by_header] {
        let refused = router.send(stream).await.unwrap();
        assert_eq!(code(refused).await, "streaming_not_queued");
    }
    assert_eq!(router.handle.rejected()["streaming_not_queued"], 2);
    running.ok();
}
