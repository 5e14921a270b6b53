//! Loads that take longer than a request may wait.

use std::time::Duration;

use http::StatusCode;
use tower_triage::admit::TargetWait;
use tower_triage::endpoints::Registry;
use tower_triage::swap::SwapConfig;
use tower_triage::{QueueConfig, RouteLayer};

use crate::fake::{Rig, STOP, model};

/// A load takes 100 s, an answer a second, and a request may wait for 30 s, which is the default.
fn rig(config: SwapConfig, queue: QueueConfig) -> Rig {
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap()).queue(queue);
    Rig::timed(config, route, Duration::from_secs(100), STOP)
}

fn one() -> SwapConfig {
    SwapConfig::memory(1.0).model(model("a", 1.0))
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_load_longer_than_max_wait() {
    let rig = rig(one(), QueueConfig::default());
    assert_eq!(
        rig.ask("a", "normal").await,
        (StatusCode::OK, "a".to_owned(), 101)
    );
    assert_eq!(rig.world.log(), ["start a"]);
}

#[tokio::test(start_paused = true)]
async fn all_that_wait_for_a_load_wait_longer_than_twice_the_target() {
    let target = TargetWait::After(Duration::from_secs(10));
    let rig = rig(one(), QueueConfig::default().target_wait(target));
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(rig.send("a", "normal").await);
    }
    for sent in sent {
        assert_eq!(sent.await.unwrap().0, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_holds_while_its_model_loads() {
    let rig = rig(one(), QueueConfig::default());
    let patient = rig.send("a", "normal").await;
    let (status, body, at) = rig.ask_with("a", &[("x-request-timeout", "40")], "").await;
    assert_eq!((status, at), (StatusCode::GATEWAY_TIMEOUT, 40), "{body}");
    assert_eq!(patient.await.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn max_wait_counts_from_the_end_of_a_load() {
    let queue = QueueConfig::default().target_wait(TargetWait::Off);
    let mut rig = rig(one(), queue);
    rig.answer = Duration::from_secs(60);
    let first = rig.send("a", "normal").await;
    let second = rig.send("a", "normal").await;
    let (status, _, at) = first.await.unwrap();
    assert_eq!((status, at), (StatusCode::OK, 160));
    let (status, body, at) = second.await.unwrap();
    assert_eq!((status, at), (StatusCode::SERVICE_UNAVAILABLE, 130));
    assert!(body.contains("queue_timeout"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn max_wait_counts_while_a_request_waits_for_memory() {
    let config = one().model(model("b", 1.0));
    let mut rig = rig(config, QueueConfig::default());
    rig.answer = Duration::from_secs(60);
    let a = rig.send("a", "normal").await;
    tokio::time::sleep(Duration::from_secs(101)).await;
    let (status, body, at) = rig.ask("b", "normal").await;
    assert_eq!((status, at), (StatusCode::SERVICE_UNAVAILABLE, 131));
    assert!(body.contains("queue_timeout"), "{body}");
    assert_eq!(a.await.unwrap().0, StatusCode::OK);
}
