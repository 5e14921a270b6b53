//! Requests for a model that can't be started wait for another one.

use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;
use tower_triage::RouteLayer;
use tower_triage::endpoints::Registry;
use tower_triage::route::RoutingConfig;
use tower_triage::swap::SwapPolicy;

use crate::fake::{LOAD, Rig, one_of_three};

/// `a` can't be started the first times, and `b` serves in its place.
fn rig(failures: u32) -> Rig {
    let routing = RoutingConfig::default().fallbacks("a", ["b"]);
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap());
    let rig = Rig::with(one_of_three(), route.routing(routing));
    rig.world.fail_next("a", failures);
    rig
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_is_loaded_serves_before_the_model_is_tried_again() {
    let rig = rig(1);
    let mut sent = Vec::new();
    for _ in 0..25 {
        sent.push(rig.send("a", "normal").await);
        sleep(Duration::from_secs(3)).await;
    }
    assert_eq!(rig.world.log(), ["start a", "start b"]);
    for sent in sent {
        let (status, body, _) = sent.await.unwrap();
        assert_eq!((status, &*body), (StatusCode::OK, "b"));
    }
    sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.ask("a", "normal").await.1, "a");
}

#[tokio::test(start_paused = true)]
async fn a_model_is_tried_again_if_its_fallback_fails_too() {
    let rig = rig(1);
    rig.world.fail_next("b", 1);
    let (status, body, at) = rig.ask("a", "normal").await;
    assert_eq!((status, at), (StatusCode::SERVICE_UNAVAILABLE, 20));
    assert!(body.contains("model_start_failed"), "{body}");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.ask("a", "normal").await.1, "a");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_goes_on_serving_though_the_model_fails_again() {
    let mut config = one_of_three();
    config.policy = SwapPolicy::Memory(vec![("all".into(), 3.0)]);
    config.models[0].pinned = true;
    let routing = RoutingConfig::default().fallbacks("a", ["b"]);
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap());
    let rig = Rig::with(config, route.routing(routing));
    rig.world.fail_next("a", u32::MAX);
    // The first start has failed. Others go on beside the load of the fallback, and then beside the fallback.
    sleep(LOAD + Duration::from_millis(500)).await;
    assert_eq!(rig.ask("a", "normal").await.1, "b");
    while rig.begin.elapsed() < LOAD * 7 {
        let since = rig.begin.elapsed().as_secs();
        let (_, body, at) = rig.ask("a", "normal").await;
        assert_eq!((&*body, at - since), ("b", 1), "at {since} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_was_loaded_before_holds_up_nothing() {
    let mut config = one_of_three();
    config.policy = SwapPolicy::Memory(vec![("all".into(), 3.0)]);
    let routing = RoutingConfig::default().fallbacks("a", ["b"]);
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap());
    let rig = Rig::with(config, route.routing(routing));
    assert_eq!(rig.ask("b", "normal").await.1, "b");
    rig.world.fail_next("a", 1);
    assert_eq!(rig.ask("a", "normal").await.1, "b");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.ask("a", "normal").await.1, "a");
}
