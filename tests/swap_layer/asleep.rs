//! Models that sleep: what ends them, and where they wake.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{sleep, timeout};
use tower_triage::swap::{SwapConfig, SwapPolicy, Unload};
use tower_triage::{RouteLayer, endpoints::Registry};

use crate::fake::{LOAD, Rig, STOP, one_of_three};

fn sleepy(mut config: SwapConfig) -> SwapConfig {
    for model in &mut config.models {
        model.sleep_path = Some("/sleep".into());
        model.wake_path = Some("/wake".into());
    }
    config
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_puts_nothing_to_sleep() {
    let rig = Rig::new(sleepy(one_of_three()));
    rig.ask("a", "normal").await;
    rig.router.close();
    let shutdown = timeout(Duration::from_secs(600), rig.swap.shutdown()).await;
    shutdown.expect("nothing runs any more");
    assert!(rig.world.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_with_what_sleeps() {
    let rig = Rig::new(sleepy(one_of_three()));
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(9)).await;
    rig.ask("b", "normal").await;
    assert_eq!(rig.state("a"), "sleeping");
    rig.swap.unload("b", Unload::Kill).unwrap();
    sleep(Duration::from_secs(9)).await;
    rig.router.close();
    let begin = rig.begin.elapsed();
    let shutdown = timeout(Duration::from_secs(600), rig.swap.shutdown()).await;
    shutdown.expect("nothing runs any more");
    assert_eq!(rig.begin.elapsed() - begin, STOP);
    assert!(rig.world.running().is_empty());
    assert_eq!(rig.world.log().last().unwrap(), "stop a");
}

/// A layer in which `a` sleeps and `b` is loaded. To stop a model takes 20 s.
async fn asleep(config: &SwapConfig) -> Rig {
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap());
    let stop = Duration::from_secs(20);
    let rig = Rig::timed(config.clone(), route, LOAD, stop);
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(9)).await;
    rig.ask("b", "normal").await;
    assert_eq!(rig.state("a"), "sleeping");
    rig
}

#[tokio::test(start_paused = true)]
async fn what_sleeps_is_stopped_unless_it_is_to_be_killed() {
    let config = sleepy(one_of_three());
    for (how, call) in [(Unload::Drain, "stop a"), (Unload::Kill, "kill a")] {
        let rig = asleep(&config).await;
        rig.swap.unload("a", how).unwrap();
        rig.settle().await;
        assert_eq!(rig.world.log().last().unwrap(), call);
        assert_eq!(rig.state("a"), "unloaded");
    }
    let rig = asleep(&config).await;
    rig.swap.unload("a", Unload::Drain).unwrap();
    rig.settle().await;
    rig.swap.unload("a", Unload::Kill).unwrap();
    rig.settle().await;
    assert_eq!(rig.world.log().last().unwrap(), "kill a");
}

#[tokio::test(start_paused = true)]
async fn what_sleeps_has_stopped_before_it_is_started_anew() {
    let mut config = sleepy(one_of_three());
    let rig = asleep(&config).await;
    config.models[0].cmd = "other".into();
    rig.swap.reconfigure(config).unwrap();
    sleep(Duration::from_secs(9)).await;
    // `b` sleeps at once.
    let (status, _, at) = rig.ask("a", "normal").await;
    assert_eq!((status, at), (StatusCode::OK, 31 + 20 + 10 + 1));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_unloaded_does_not_sleep() {
    let rig = Rig::new(sleepy(one_of_three()));
    rig.ask("a", "normal").await;
    rig.swap.unload("a", Unload::Drain).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.state("a"), "unloaded");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_configured_differently_does_not_sleep() {
    let mut config = sleepy(one_of_three());
    let rig = Rig::new(config.clone());
    rig.ask("a", "normal").await;
    config.models[0].cmd = "other".into();
    rig.swap.reconfigure(config.clone()).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
    assert_eq!(rig.world.log(), ["start a", "stop a", "start a"]);
    config.models.remove(0);
    rig.swap.reconfigure(config.clone()).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(rig.world.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waking_that_is_given_up_has_ended_before_another_begins() {
    let rig = asleep(&sleepy(one_of_three())).await;
    rig.swap.unload("b", Unload::Drain).unwrap();
    sleep(Duration::from_secs(29)).await;
    assert_eq!(rig.state("a"), "sleeping");
    let left = rig.send("a", "normal").await;
    sleep(Duration::from_secs(1)).await;
    left.abort();
    rig.settle().await;
    let begin = rig.begin.elapsed().as_secs();
    let took = rig.ask("b", "normal").await.2 - begin;
    assert_eq!(took, 20 + 10 + 1);
    assert_eq!(rig.world.most_present.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waking_that_is_given_up_is_stopped_unless_it_is_to_be_killed() {
    for (how, calls) in [
        ([Unload::Drain; 2], "wake a, stop a"),
        ([Unload::Kill; 2], "wake a, kill a"),
        ([Unload::Drain, Unload::Kill], "wake a, stop a, kill a"),
    ] {
        let rig = asleep(&sleepy(one_of_three())).await;
        rig.swap.unload("b", Unload::Drain).unwrap();
        sleep(Duration::from_secs(29)).await;
        rig.swap.load("a").unwrap();
        for how in how {
            sleep(Duration::from_secs(1)).await;
            rig.swap.unload("a", how).unwrap();
        }
        rig.settle().await;
        let log = rig.world.log().join(", ");
        assert!(log.ends_with(calls), "{log}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_ends_while_it_wakes_is_seen_to_be_loading() {
    let rig = Rig::new(sleepy(one_of_three()));
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(9)).await;
    rig.ask("b", "normal").await;
    sleep(Duration::from_secs(9)).await;
    let waits = rig.send("a", "normal").await;
    sleep(Duration::from_secs(1)).await;
    rig.world.crash("a");
    rig.settle().await;
    assert_eq!(rig.state("a"), "loading");
    assert_eq!(waits.await.unwrap().0, StatusCode::OK);
    assert_eq!(rig.world.log().last().unwrap(), "start a");
}

#[tokio::test(start_paused = true)]
async fn an_instance_knows_that_it_is_idle_when_it_is_put_to_sleep() {
    let mut config = sleepy(one_of_three());
    config.min_loaded = Duration::ZERO;
    let rig = Rig::new(config);
    *rig.world.fall_asleep.lock().unwrap() = Duration::from_secs(60);
    rig.ask("a", "normal").await;
    assert_eq!(rig.world.awaited.load(SeqCst), 1);
    let _waits = rig.send("b", "normal").await;
    rig.settle().await;
    assert_eq!(rig.world.log(), ["start a", "sleep a"]);
    assert_eq!(rig.world.awaited.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_wakes_only_in_the_pool_that_it_sleeps_in() {
    let mut config = sleepy(one_of_three());
    config.policy = SwapPolicy::Memory(vec![("g0".into(), 1.0), ("g1".into(), 1.0)]);
    let rig = Rig::new(config);
    // `c` takes the pool of `a`, and `a` that of `b`.
    for name in ["a", "b", "c", "a", "c", "b"] {
        let asked = rig.send(name, "normal").await;
        sleep(Duration::from_millis(1_500)).await;
        let state = if asked.is_finished() {
            "loaded"
        } else {
            "loading"
        };
        assert_eq!(rig.state(name), state);
        assert_eq!(asked.await.unwrap().1, name);
        sleep(Duration::from_secs(9)).await;
    }
    let log = [
        "start a", "start b", "sleep a", "start c", "stop a", "sleep b", "start a", "sleep a",
        "wake b",
    ];
    assert_eq!(rig.world.log(), log);
}
