//! Endpoints that come and go while requests wait for them.

use http::StatusCode;
use tower_triage::endpoints::FallbackWhen;
use tower_triage::route::RoutingConfig;

use super::support::{House, code, endpoint, header, settle};

#[tokio::test(start_paused = true)]
async fn when_the_last_endpoint_goes_all_who_wait_are_answered() {
    let mut house = House::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    house.ask("m");
    let running = house.call().await;
    let waiting: Vec<_> = (0..50).map(|_| house.ask("m")).collect();
    settle().await;
    assert_eq!(house.handle.status().depth, 50);
    house.handle.set_healthy(&house.endpoint("a"), false);
    for waiter in waiting {
        assert_eq!(code(waiter.await.unwrap()).await, "no_healthy_backend");
    }
    assert_eq!(house.handle.status().depth, 0);
    running.ok();
}

#[tokio::test(start_paused = true)]
async fn when_the_last_endpoint_goes_all_who_wait_move_to_the_fallback() {
    let routing = RoutingConfig::default().fallbacks("m", ["n"]);
    let mut house = House::new(
        [endpoint("a", 1, &["m"]), endpoint("b", 3, &["n"])],
        routing,
    );
    house.ask("m");
    let running = house.call().await;
    assert_eq!(running.endpoint(), "a");
    let waiting: Vec<_> = (0..3).map(|_| house.ask("m")).collect();
    assert!(
        house.settled().await.is_none(),
        "they wait for a busy primary"
    );
    house.handle.set_healthy(&house.endpoint("a"), false);
    for _ in 0..3 {
        let call = house.call().await;
        assert_eq!(call.endpoint(), "b");
        call.ok();
    }
    for waiter in waiting {
        assert_eq!(header(&waiter.await.unwrap(), "x-triage-model"), "n");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_fallback_is_taken_before_waiting_only_if_wanted() {
    for (when, to) in [
        (FallbackWhen::Unavailable, None),
        (FallbackWhen::Busy, Some("b")),
    ] {
        let routing = RoutingConfig::default()
            .fallbacks("m", ["n"])
            .fallback_when(when);
        let mut house = House::new(
            [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])],
            routing,
        );
        house.ask("m");
        let _busy = house.call().await;
        house.ask("m");
        let call = house.settled().await;
        assert_eq!(call.as_ref().map(|call| call.endpoint()), to, "{when:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_may_be_served_by_either_takes_the_first_that_is_free() {
    let routing = RoutingConfig::default()
        .fallbacks("m", ["n"])
        .fallback_when(FallbackWhen::Busy);
    let mut house = House::new(
        [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])],
        routing,
    );
    house.ask("m");
    let _primary = house.call().await;
    house.ask("m");
    let fallback = house.call().await;
    house.ask("m");
    assert!(house.settled().await.is_none());
    fallback.ok();
    assert_eq!(house.call().await.endpoint(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_new_or_changed_endpoint_serves_who_waits() {
    let mut house = House::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    house.handle.set_healthy(&house.endpoint("a"), true);
    house.ask("m");
    let _busy = house.call().await;
    (0..3).for_each(|_| _ = house.ask("m"));
    settle().await;
    let handle = &house.handle;
    let changes = handle
        .change_endpoints(|endpoints| endpoints.push(endpoint("b", 1, &["m"])))
        .unwrap();
    assert_eq!(changes.added, ["b"]);
    let at_b = house.call().await;
    assert_eq!(at_b.endpoint(), "b");
    let handle = &house.handle;
    let changes = handle
        .change_endpoints(|endpoints| endpoints[0].max_concurrent = 2)
        .unwrap();
    assert_eq!(changes.changed, ["a"]);
    let at_a = house.call().await;
    assert_eq!(at_a.endpoint(), "a");
    house.handle.set_limit(&house.endpoint("b"), 2);
    house.handle.set_healthy(&house.endpoint("b"), true);
    assert_eq!(house.call().await.endpoint(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_removed_endpoint_finishes_what_it_has() {
    let mut house = House::new(
        [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])],
        RoutingConfig::default(),
    );
    let asked = house.ask("m");
    let running = house.call().await;
    let waits = house.ask("m");
    settle().await;
    let changes = house
        .handle
        .change_endpoints(|endpoints| _ = endpoints.remove(0));
    assert_eq!(changes.unwrap().removed, ["a"]);
    assert_eq!(code(waits.await.unwrap()).await, "model_not_found");
    assert_eq!(house.handle.status().running, 1);
    running.ok();
    assert_eq!(asked.await.unwrap().status(), StatusCode::OK);
    assert_eq!(house.handle.status().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_draining_endpoint_gets_nothing_new() {
    let mut house = House::new(
        [endpoint("a", 2, &["m"]), endpoint("b", 2, &["m"])],
        RoutingConfig::default(),
    );
    house.handle.set_draining(&house.endpoint("a"), true);
    house.ask("m");
    let at_b = house.call().await;
    assert_eq!(at_b.endpoint(), "b");
    assert!(house.endpoint("a").healthy());
    house.handle.set_draining(&house.endpoint("a"), false);
    house.ask("m");
    assert_eq!(house.call().await.endpoint(), "a");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_not_sound_changes_nothing() {
    let house = House::new([endpoint("a", 1, &["m"])], RoutingConfig::default());
    let twice = house
        .handle
        .change_endpoints(|endpoints| endpoints.push(endpoint("a", 1, &[])));
    assert!(twice.unwrap_err().to_string().contains("\"a\""));
    let registry = (*house.handle.registry()).clone();
    let circle = RoutingConfig::default().alias("x", "y").alias("y", "x");
    assert!(house.handle.replace(registry, circle).is_err());
    assert_eq!(house.handle.endpoints().len(), 1);
    assert!(house.handle.routing().aliases.is_empty());
}
