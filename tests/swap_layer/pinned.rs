//! Pinned models come back by themselves.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{sleep, timeout};
use tower_triage::swap::{SwapConfig, SwapPolicy, Unload};

use crate::fake::{LOAD, Rig, model, one_of_three};

/// `a` is pinned, `b` is preloaded, and all fit.
fn pinned() -> SwapConfig {
    let mut config = one_of_three();
    config.policy = SwapPolicy::Memory(vec![("all".into(), 3.0)]);
    config.models[0].pinned = true;
    config.models[1].preload = true;
    config
}

impl Rig {
    /// After how many seconds the model is started once more than it was.
    async fn until_started(&self, model: &str) -> u64 {
        let entry = format!("start {model}");
        let starts = || self.world.log().iter().filter(|it| **it == entry).count();
        let (before, since) = (starts(), self.begin.elapsed());
        let started = async {
            while starts() == before {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let started = timeout(Duration::from_secs(3_600), started).await;
        started.expect("it is started");
        (self.begin.elapsed() - since).as_secs()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pinned_model_that_crashed_comes_back() {
    let rig = Rig::new(pinned());
    sleep(LOAD * 2).await;
    rig.world.crash("a");
    rig.world.crash("b");
    rig.settle().await;
    assert_eq!(rig.state("a"), "unloaded");
    assert_eq!(rig.until_started("a").await, 1);
    sleep(LOAD * 20).await;
    assert_eq!(rig.world.running(), ["a"], "the other was not asked for");
    // It was loaded for long: that is no loop.
    rig.world.crash("a");
    assert_eq!(rig.until_started("a").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_model_that_goes_on_crashing_comes_back_more_and_more_rarely() {
    let rig = Rig::new(pinned());
    sleep(LOAD * 2).await;
    let mut waits = Vec::new();
    for _ in 0..8 {
        rig.world.crash("a");
        waits.push(rig.until_started("a").await);
        sleep(LOAD + Duration::from_secs(1)).await;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    // A request does not wait for that.
    rig.world.crash("a");
    rig.settle().await;
    let since = rig.begin.elapsed().as_secs();
    let (status, _, at) = rig.ask("a", "normal").await;
    assert_eq!((status, at - since), (StatusCode::OK, 11));
}

#[tokio::test(start_paused = true)]
async fn a_pinned_model_that_could_not_be_started_is_tried_again() {
    let rig = Rig::new(pinned());
    rig.world.fail_next("a", 3);
    let mut waits = Vec::new();
    sleep(LOAD).await;
    for _ in 0..3 {
        waits.push(rig.until_started("a").await);
        sleep(LOAD).await;
    }
    assert_eq!(waits, [1, 2, 4]);
    rig.settle().await;
    assert_eq!(rig.state("a"), "loaded");
}

#[tokio::test(start_paused = true)]
async fn a_pinned_model_that_is_unloaded_stays_so() {
    let rig = Rig::new(pinned());
    sleep(LOAD * 2).await;
    rig.world.crash("a");
    rig.settle().await;
    rig.swap.unload("a", Unload::Drain).unwrap();
    sleep(LOAD * 2).await;
    assert_eq!(rig.state("a"), "unloaded");
    rig.world.fail_next("a", 1);
    rig.swap.load("a").unwrap();
    sleep(LOAD).await;
    rig.settle().await;
    rig.swap.unload("a", Unload::Kill).unwrap();
    sleep(LOAD * 2).await;
    let starts = rig.world.log();
    assert_eq!(starts.iter().filter(|it| **it == "start a").count(), 2);
    // As does one that crashes while it serves its last request.
    rig.swap.load("a").unwrap();
    sleep(LOAD).await;
    let served = rig.send("a", "normal").await;
    rig.settle().await;
    rig.swap.unload("a", Unload::Drain).unwrap();
    rig.settle().await;
    rig.world.crash("a");
    served.await.unwrap();
    sleep(LOAD * 2).await;
    assert_eq!(rig.state("a"), "unloaded");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_pinned_by_another_configuration_is_started() {
    let mut config = pinned();
    config.models[0].pinned = false;
    let rig = Rig::new(config.clone());
    sleep(LOAD * 2).await;
    assert_eq!(rig.world.running(), ["b"]);
    config.models[0].pinned = true;
    rig.swap.reconfigure(config.clone()).unwrap();
    sleep(LOAD * 2).await;
    assert_eq!(rig.world.running(), ["a", "b"]);
    // A process that changes is stopped and started again, whether it is pinned or preloaded.
    config.models[0].cmd = "other".into();
    config.models[1].cmd = "other".into();
    rig.swap.reconfigure(config.clone()).unwrap();
    sleep(LOAD * 2).await;
    assert_eq!(rig.world.running(), ["a", "b"]);
    config.models[0].pinned = false;
    rig.world.crash("a");
    rig.settle().await;
    rig.swap.reconfigure(config).unwrap();
    sleep(LOAD * 2).await;
    assert_eq!(rig.world.running(), ["b"], "a is not pinned any more");
}

#[tokio::test(start_paused = true)]
async fn the_default_model_comes_back_though_a_pinned_one_cannot_be_started() {
    let mut config = pinned();
    config.default = Some("c".into());
    let rig = Rig::new(config);
    rig.world.fail_next("a", u32::MAX);
    sleep(LOAD * 30).await;
    assert_eq!(rig.world.running(), ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn instances_of_a_pinned_model_start_once_all_has_stopped_for_the_first() {
    let mut config = SwapConfig::default();
    for name in ["a", "b"] {
        let mut one = model(name, 1.0);
        one.memory = None;
        config = config.model(one);
    }
    let rig = Rig::new(config.clone());
    rig.ask("a", "normal").await;
    sleep(LOAD).await;
    (config.models[1].instances, config.models[1].pinned) = (2, true);
    rig.swap.reconfigure(config).unwrap();
    sleep(LOAD * 2).await;
    assert_eq!(rig.world.running(), ["b", "b#2"]);
    assert_eq!(rig.world.most_present.load(SeqCst), 2);
    let after = rig.world.log().split_off(1);
    assert_eq!(after, ["stop a", "start b", "start b#2"]);
}

#[tokio::test(start_paused = true)]
async fn a_pinned_model_that_comes_back_is_started() {
    let config = pinned();
    let rig = Rig::new(config.clone());
    sleep(LOAD * 2).await;
    let mut without = config.clone();
    without.models.remove(0);
    // While it serves, and once it has stopped.
    for serves in [true, false] {
        let mut sent = Vec::new();
        if serves {
            sent.push(rig.send("a", "normal").await);
        }
        rig.swap.reconfigure(without.clone()).unwrap();
        if !serves {
            sleep(LOAD).await;
            assert_eq!(rig.world.running(), ["b"]);
        }
        rig.swap.reconfigure(config.clone()).unwrap();
        sleep(LOAD * 2).await;
        assert_eq!(rig.world.running(), ["a", "b"], "{serves}");
        for sent in sent {
            assert_eq!(sent.await.unwrap().0, StatusCode::OK);
        }
    }
}
