//! Another configuration while a model is being loaded.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use http::{StatusCode, Uri};
use tokio::time::sleep;
use tower_triage::endpoints::{Endpoint, Model, Registry};
use tower_triage::route::RoutingConfig;
use tower_triage::swap::{InvalidSwapLayer, SwapConfig, SwapHandle, SwapPolicy, Unload};

use crate::fake::{LOAD, Rig, Sent, model, one_of_three};

/// A layer in which a request waits for `a`, for a second so far.
async fn loading(config: &SwapConfig) -> (Rig, Sent) {
    let rig = Rig::new(config.clone());
    let waits = rig.send("a", "normal").await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.state("a"), "loading");
    (rig, waits)
}

#[tokio::test(start_paused = true)]
async fn a_load_goes_on_in_the_same_configuration_and_beside_other_changes() {
    let mut config = one_of_three();
    let (rig, waits) = loading(&config).await;
    rig.swap.reconfigure(config.clone()).unwrap();
    sleep(Duration::from_secs(1)).await;
    config.models[0].ttl = None;
    config.models[0].concurrency = 3;
    config.models[1].cmd = "other".into();
    config.models.remove(2);
    config.policy = SwapPolicy::Memory(vec![("all".into(), 2.0), ("more".into(), 2.0)]);
    rig.swap.reconfigure(config).unwrap();
    let (status, _, at) = waits.await.unwrap();
    assert_eq!((status, at), (StatusCode::OK, LOAD.as_secs() + 1));
    assert_eq!(rig.world.log(), ["start a"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_of_what_is_another_process_now_begins_anew_once_it_has_ended() {
    let mut config = one_of_three();
    let (rig, waits) = loading(&config).await;
    *rig.world.kill.lock().unwrap() = Duration::from_secs(20);
    config.models[0].cmd = "other".into();
    rig.swap.reconfigure(config).unwrap();
    let (status, _, at) = waits.await.unwrap();
    assert_eq!((status, at), (StatusCode::OK, 1 + 20 + LOAD.as_secs() + 1));
    assert_eq!(rig.world.log(), ["start a", "start a"]);
    assert_eq!(rig.world.twice.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_load_of_what_has_left_is_given_up() {
    let mut config = one_of_three();
    let (rig, waits) = loading(&config).await;
    *rig.world.kill.lock().unwrap() = Duration::from_secs(20);
    let a = config.models.remove(0);
    rig.swap.reconfigure(config.clone()).unwrap();
    assert_eq!(waits.await.unwrap().0, StatusCode::NOT_FOUND);
    // It comes back while what is left of it is killed.
    config.models.push(a);
    rig.swap.reconfigure(config).unwrap();
    rig.settle().await;
    let (status, _, at) = rig.ask("a", "normal").await;
    assert_eq!((status, at), (StatusCode::OK, 1 + 20 + LOAD.as_secs() + 1));
    assert_eq!(rig.world.twice.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_becomes_an_endpoint_and_comes_back_while_a_request_waits() {
    let mut config = one_of_three();
    let (rig, waits) = loading(&config).await;
    let a = || {
        let url = Uri::from_static("http://a:1");
        Registry::new(vec![Endpoint::new("a", url).model(Model::new("a"))]).unwrap()
    };
    let twice = rig
        .swap
        .replace(config.clone(), a(), RoutingConfig::default());
    let twice = twice.await.unwrap_err();
    assert!(matches!(twice, InvalidSwapLayer::Registry(_)), "{twice}");

    config.models.remove(0);
    let changed = rig.swap.replace(config, a(), RoutingConfig::default());
    let changed = changed.await.unwrap();
    assert_eq!(
        (changed.added, changed.removed.len()),
        (vec!["a".to_owned()], 0)
    );
    // What answers is the endpoint: there is no process at its port.
    assert_eq!(waits.await.unwrap().0, StatusCode::BAD_GATEWAY);
    assert_eq!(rig.world.astray.load(SeqCst), 1);
    rig.settle().await;

    let none = Registry::new(Vec::new()).unwrap();
    let changed = rig
        .swap
        .replace(one_of_three(), none, RoutingConfig::default());
    let changed = changed.await.unwrap();
    assert_eq!(
        (changed.added.len(), changed.removed),
        (0, vec!["a".to_owned()])
    );
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_where_a_model_of_its_name_ran_is_not_stopped_with_it() {
    let mut config = one_of_three();
    let rig = Rig::new(config.clone());
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
    let url = rig.swap.models()[0].url.clone().unwrap().parse().unwrap();
    let a = Endpoint::new("a", url).model(Model::new("a"));
    config.models.remove(0);
    let a = Registry::new(vec![a]).unwrap();
    let changed = rig.swap.replace(config, a, RoutingConfig::default());
    assert_eq!(changed.await.unwrap().added, ["a"]);
    sleep(LOAD).await;
    assert_eq!(rig.world.log(), ["start a", "stop a"]);
    // It is asked, though no process is there any more.
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::BAD_GATEWAY);

    let none = Registry::new(Vec::new()).unwrap();
    let changed = rig
        .swap
        .replace(one_of_three(), none, RoutingConfig::default());
    assert_eq!(changed.await.unwrap().removed, ["a"]);
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
}

/// Notes, as soon as it is woken, whether there is a model `d`.
struct Looks(SwapHandle, AtomicBool);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.1.store(self.0.load("d").is_ok(), SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn models_are_there_when_a_change_in_one_step_is_reported() {
    let rig = Rig::new(one_of_three());
    let config = one_of_three().model(model("d", 1.0));
    let none = Registry::new(Vec::new()).unwrap();
    let looks = Arc::new(Looks(rig.swap.clone(), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&looks));
    let mut changed = pin!(rig.swap.replace(config, none, RoutingConfig::default()));
    let first = changed.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(first.is_pending());
    rig.settle().await;
    assert!(looks.1.load(SeqCst));
    assert!(changed.await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_the_end_of_a_start() {
    let (rig, waits) = loading(&one_of_three()).await;
    *rig.world.kill.lock().unwrap() = Duration::from_secs(20);
    rig.router.close();
    assert_eq!(waits.await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    rig.swap.shutdown().await;
    assert_eq!(rig.begin.elapsed().as_secs(), 1 + 20);
    assert!(rig.world.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_has_left_and_does_not_run_out_is_killed_with_all() {
    let mut config = one_of_three();
    let mut rig = Rig::new(config.clone());
    rig.answer = Duration::from_secs(100_000);
    let _served = rig.send("a", "normal").await;
    sleep(LOAD * 2).await;
    config.models.remove(0);
    rig.swap.reconfigure(config).unwrap();
    sleep(LOAD * 2).await;
    assert_eq!(rig.world.running(), ["a"]);
    rig.swap.unload_all(Unload::Kill);
    rig.settle().await;
    assert_eq!(rig.world.log(), ["start a", "kill a"]);
    rig.answer = Duration::from_secs(1);
    assert_eq!(rig.ask("b", "normal").await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn what_was_started_by_another_policy_takes_memory_until_it_has_run_out() {
    let budget = one_of_three();
    let mut groups = budget.clone();
    groups.policy = SwapPolicy::Groups(Vec::new());
    groups
        .models
        .iter_mut()
        .for_each(|model| model.memory = None);
    let mut rig = Rig::new(groups);
    rig.answer = LOAD * 3;
    let served = rig.send("a", "normal").await;
    sleep(LOAD * 2).await;
    rig.swap.reconfigure(budget).unwrap();
    let (status, _, at) = rig.ask("b", "normal").await;
    assert_eq!(served.await.unwrap().0, StatusCode::OK);
    assert_eq!((status, at), (StatusCode::OK, 40 + 1 + 10 + 30));
    assert_eq!(rig.world.most_present.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lower_memory_stops_what_is_idle() {
    let with_memory = |memory| {
        let config = SwapConfig::memory(memory);
        let models = ["a", "b", "c"].map(|name| model(name, 1.0).ttl(None));
        models.into_iter().fold(config, SwapConfig::model)
    };
    let rig = Rig::new(with_memory(3.0));
    for name in ["c", "b", "a"] {
        rig.ask(name, "normal").await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let served = rig.send("c", "normal").await;
    rig.swap.reconfigure(with_memory(2.0)).unwrap();
    rig.settle().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.state("b"), "unloading");
    // What serves is stopped only when it is idle.
    rig.swap.reconfigure(with_memory(1.0)).unwrap();
    rig.settle().await;
    assert_eq!((rig.state("a"), rig.state("c")), ("unloading", "loaded"));
    assert_eq!(served.await.unwrap().0, StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.world.running(), ["c"]);
    assert_eq!(rig.world.astray.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_runs_on_is_told_its_new_url() {
    let mut config = one_of_three();
    let rig = Rig::new(config.clone());
    rig.ask("a", "normal").await;
    let url = || {
        (
            rig.swap.models()[0].url.clone(),
            rig.router.endpoints()[0].url().to_string(),
        )
    };
    let own = url();
    assert_eq!(own.0.as_ref(), Some(&own.1));
    for panics in [false, true] {
        if panics {
            rig.world.panic_at("on_reconfigure a");
        }
        config.models[0].proxy = Some(Uri::from_static("http://container:1/base"));
        rig.swap.reconfigure(config.clone()).unwrap();
        rig.settle().await;
        let proxy = "http://container:1/base".to_owned();
        assert_eq!(url(), (Some(proxy.clone()), proxy));
        config.models[0].proxy = None;
        rig.swap.reconfigure(config.clone()).unwrap();
        rig.settle().await;
        assert_eq!(url(), own);
    }
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
    assert_eq!(
        rig.world.log(),
        ["start a", "proxy http://container:1/base"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_output_of_a_model_is_that_of_all_its_instances_and_starts() {
    let mut config = one_of_three();
    config.models[0].instances = 2;
    config.policy = SwapPolicy::Memory(vec![("all".into(), 2.0)]);
    let rig = Rig::new(config.clone());
    let mut output = rig.swap.output("a").unwrap();
    let other = rig.swap.output("b").unwrap();
    let both = [rig.send("a", "normal").await, rig.send("a", "normal").await];
    let first = output.next().await.unwrap();
    assert_eq!(*first.lines[0], *"a begins");
    for sent in both {
        sent.await.unwrap();
    }
    config.models[0].cmd = "other".into();
    rig.swap.reconfigure(config).unwrap();
    rig.settle().await;
    rig.ask("a", "normal").await;
    let mut all = rig.swap.output("a").unwrap();
    let all = all.next().await.unwrap().lines;
    let mut begun: Vec<&str> = all.iter().map(|line| &**line).collect();
    begun.sort_unstable();
    assert_eq!(begun, ["a begins", "a begins", "a#2 begins"]);
    assert!(futures_util::FutureExt::now_or_never({ other }.next()).is_none());
    assert!(rig.swap.output("z").is_err());
}
