//! Several models in turn: how long requests wait, and how often models are swapped.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use http::StatusCode;

use crate::fake::{Rig, model, one_of_three};
use tower_triage::swap::SwapConfig;

#[tokio::test(start_paused = true)]
async fn abcabc_is_served_as_aabbcc() {
    let rig = Rig::new(one_of_three());
    let mut sent = Vec::new();
    for name in ["a", "b", "c", "a", "b", "c"] {
        sent.push(rig.send(name, "normal").await);
    }
    let mut served = Vec::new();
    for sent in sent {
        let (status, name, at) = sent.await.unwrap();
        assert_eq!(status, StatusCode::OK);
        served.push((at, name));
    }
    served.sort();
    let order: String = served.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(order, "aabbcc");
    let log = rig.world.log();
    assert_eq!(log, ["start a", "stop a", "start b", "stop b", "start c"]);
    assert_eq!(rig.world.astray.load(SeqCst), 0);
}

/// Requests for `a`, of which one always waits.
fn traffic(rig: &Rig) -> tokio::task::JoinHandle<()> {
    let rig = rig.clone();
    tokio::spawn(async move {
        let mut oldest = rig.send("a", "normal").await;
        loop {
            let next = rig.send("a", "normal").await;
            oldest.await.unwrap();
            oldest = next;
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_traffic_of_a_model_yields_after_a_while() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    let traffic = traffic(&rig);
    rig.settle().await;
    let begin = rig.begin.elapsed().as_secs();
    let (status, name, at) = rig.ask("b", "normal").await;
    assert_eq!((status, name.as_str()), (StatusCode::OK, "b"));
    // `swap_after`, the request that runs, the stop, the load, its own service.
    let waited = at - begin;
    assert!((22..=24).contains(&waited), "{waited}");
    traffic.abort();
}

#[tokio::test(start_paused = true)]
async fn a_more_urgent_request_does_not_wait_for_traffic() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    let mut traffic = Vec::new();
    for _ in 0..30 {
        traffic.push(rig.send("a", "normal").await);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let begin = rig.begin.elapsed().as_secs();
    let (_, name, at) = rig.ask("b", "high").await;
    assert_eq!(name, "b");
    let waited = at - begin;
    assert!((12..=14).contains(&waited), "{waited}");
    for sent in traffic {
        assert_eq!(sent.await.unwrap().0, StatusCode::OK);
    }
}

/// Requests for `a` that overlap, and of which none waits.
fn free_traffic(rig: &Rig, priority: &'static str) -> tokio::task::JoinHandle<()> {
    let rig = rig.clone();
    tokio::spawn(async move {
        loop {
            drop(rig.send("a", priority).await); // it goes on by itself
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    })
}

/// How long a request for `b` takes beside such traffic, in seconds.
async fn beside_free_traffic(traffic: &'static str, priority: &str) -> u64 {
    let mut config = one_of_three();
    config.models[0] = model("a", 1.0).concurrency(100);
    let rig = Rig::new(config);
    rig.ask("a", "normal").await;
    let traffic = free_traffic(&rig, traffic);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let begin = rig.begin.elapsed().as_secs();
    let (status, name, at) = rig.ask("b", priority).await;
    assert_eq!((status, name.as_str()), (StatusCode::OK, "b"));
    assert_eq!(rig.world.astray.load(SeqCst), 0);
    traffic.abort();
    at - begin
}

#[tokio::test(start_paused = true)]
async fn a_more_urgent_request_does_not_wait_for_traffic_that_finds_slots_free() {
    // The requests that run, the stop, the load, its own service.
    let waited = beside_free_traffic("normal", "high").await;
    assert!((12..=14).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn traffic_that_finds_slots_free_yields_to_its_own_level_after_a_while() {
    for (traffic, priority) in [("normal", "normal"), ("high", "high"), ("high", "normal")] {
        // `swap_after` more.
        let waited = beside_free_traffic(traffic, priority).await;
        assert!((22..=24).contains(&waited), "{waited}");
    }
}

#[tokio::test(start_paused = true)]
async fn models_that_fit_together_run_side_by_side() {
    let config = SwapConfig::memory(3.0)
        .model(model("a", 1.0))
        .model(model("b", 2.0))
        .model(model("c", 2.0));
    let rig = Rig::new(config);
    let (a, b) = tokio::join!(rig.ask("a", "normal"), rig.ask("b", "normal"));
    assert_eq!((a.2, b.2), (11, 11));
    let c = rig.ask("c", "normal").await;
    assert_eq!(c.1, "c");
    // `a` may stay.
    assert_eq!(rig.world.running(), ["a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_further_instance_is_started_when_the_first_is_busy() {
    let mut one = model("a", 1.0);
    one.instances = 2;
    let rig = Rig::new(SwapConfig::memory(2.0).model(one));
    let first = rig.send("a", "normal").await;
    rig.settle().await;
    assert_eq!(first.await.unwrap().2, 11);
    assert_eq!(rig.world.running(), ["a"]);
    let mut sent = Vec::new();
    for _ in 0..30 {
        sent.push(rig.send("a", "normal").await);
    }
    let mut last = 0;
    for sent in sent {
        last = last.max(sent.await.unwrap().2);
    }
    assert_eq!(rig.world.running(), ["a", "a#2"]);
    // 10 by the first alone, then two at a time.
    assert!((31..=33).contains(&last), "{last}");
    assert_eq!(rig.swap.models()[0].running, 2);
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_not_stopped_for_another_one_of_its_model() {
    let mut one = model("a", 1.0);
    one.instances = 2;
    let mut config = SwapConfig::memory(1.0).model(one);
    (config.swap_after, config.min_loaded) = (Duration::ZERO, Duration::ZERO);
    let rig = Rig::new(config);
    let mut sent = Vec::new();
    for _ in 0..10 {
        sent.push(rig.send("a", "normal").await);
    }
    for sent in sent {
        assert_eq!(sent.await.unwrap().0, StatusCode::OK);
    }
    assert_eq!(rig.world.log(), ["start a"]);
}

/// Which of its requests goes first may change, as they come and leave.
#[tokio::test(start_paused = true)]
async fn a_model_is_waited_for_since_its_first_request_came() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    let traffic = traffic(&rig);
    rig.settle().await;
    let first = rig.send("b", "normal").await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let second = rig.send("b", "normal").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.abort();
    let begin = rig.begin.elapsed().as_secs();
    let (status, _, at) = second.await.unwrap();
    assert_eq!(status, StatusCode::OK);
    // One more second until `swap_after` is over, what `a` serves, the stop, the load, its own service.
    let waited = at - begin;
    assert!((13..=15).contains(&waited), "{waited}");
    traffic.abort();
}

#[tokio::test(start_paused = true)]
async fn an_instance_does_not_start_while_another_one_stops_for_another_model() {
    let mut config = SwapConfig::default();
    for (name, instances) in [("a", 2), ("b", 1)] {
        let mut one = model(name, 1.0);
        (one.memory, one.instances) = (None, instances);
        config = config.model(one);
    }
    let rig = Rig::new(config);
    let mut sent = Vec::new();
    for _ in 0..30 {
        sent.push(rig.send("a", "normal").await);
    }
    for sent in sent {
        assert_eq!(sent.await.unwrap().0, StatusCode::OK);
    }
    assert_eq!(rig.world.running(), ["a", "a#2"]);
    rig.world.crash("a");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let for_b = rig.send("b", "normal").await;
    rig.settle().await;
    let for_a = rig.send("a", "normal").await;
    assert_eq!(for_b.await.unwrap().1, "b");
    assert_eq!(for_a.await.unwrap().1, "a");
    let log = rig.world.log();
    let swap = log.iter().position(|entry| entry == "stop a#2").unwrap();
    let expected = ["stop a#2", "start b", "stop b", "start a"];
    assert_eq!(log[swap..][..4], expected, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_not_started_for_a_request_that_another_one_is_about_to_serve() {
    let mut one = model("a", 1.0);
    one.instances = 2;
    let config = SwapConfig::memory(2.0).model(one).model(model("b", 1.0));
    let rig = Rig::new(config);
    rig.ask("b", "normal").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.ask("a", "normal").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.world.log(), ["start b", "start a"]);
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_model_stops() {
    for (uses, health_interval) in [(1, Some(Duration::from_secs(10))), (1, None), (20, None)] {
        let mut config = SwapConfig::memory(2.0);
        for name in ["a", "b", "c"] {
            let mut one = model(name, 1.0).ttl(None);
            one.health_interval = health_interval;
            config = config.model(one);
        }
        let rig = Rig::new(config);
        rig.ask("a", "normal").await;
        rig.ask("b", "normal").await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        for _ in 0..uses {
            rig.ask("a", "normal").await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        rig.ask("c", "normal").await;
        let running = rig.world.running();
        assert_eq!(running, ["a", "c"], "{uses} {health_interval:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_alternates_waits_for_loads_alone() {
    let rig = Rig::new(one_of_three());
    assert_eq!(rig.ask("a", "normal").await.2, 11);
    // The stop of the model before, the load, and the answer.
    assert_eq!(rig.ask("b", "normal").await.2, 23);
    assert_eq!(rig.ask("a", "normal").await.2, 35);
}
