//! What an operator asks: models that sleep, are pinned, loaded before they are asked for, and other configurations.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;
use tower_triage::endpoints::{Endpoint, Model, Registry};
use tower_triage::queue::Overflow;
use tower_triage::route::RoutingConfig;
use tower_triage::swap::{InvalidSwapLayer, ModelState, SwapConfig, SwapLayer, SwapPolicy};
use tower_triage::{QueueConfig, RouteLayer};

use crate::fake::{Rig, model, one_of_three};

#[tokio::test(start_paused = true)]
async fn a_model_that_can_sleep_is_woken_rather_than_started() {
    let mut config = one_of_three();
    config.models[0].sleep_path = Some("/sleep".into());
    config.models[0].wake_path = Some("/wake".into());
    let rig = Rig::new(config);
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(9)).await;
    assert_eq!(rig.ask("b", "normal").await.2, 31); // 20 + 10 + 1, no stop
    assert_eq!(rig.state("a"), "sleeping");
    sleep(Duration::from_secs(9)).await;
    assert_eq!(rig.ask("a", "normal").await.2, 44); // 40 + 1 + 2 + 1
    let log = ["start a", "sleep a", "start b", "stop b", "wake a"];
    assert_eq!(rig.world.log(), log);
    assert_eq!(rig.world.astray.load(SeqCst), 0);
    assert_eq!(rig.world.most_present.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn models_are_loaded_before_they_are_asked_for() {
    let mut config = one_of_three();
    config.models[1].preload = true;
    let rig = Rig::new(config);
    let mut events = rig.swap.events();
    assert_eq!(rig.state("b"), "loading");
    let event = events.next().await.unwrap();
    assert_eq!((&*event.model, event.state), ("b", ModelState::Loaded));
    assert_eq!(rig.ask("b", "normal").await.2, 11);
    rig.swap.load("c").unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.world.running(), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_tries_a_model_that_failed_at_once() {
    let rig = Rig::new(one_of_three());
    rig.world.fail_next("a", 2);
    assert_eq!(rig.ask("a", "normal").await.2, 10);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.ask("a", "normal").await.2, 22);
    assert_eq!(rig.state("a"), "failed");
    rig.swap.load("a").unwrap();
    rig.settle().await;
    assert_eq!(rig.state("a"), "loading");
    let (status, _, at) = rig.ask("a", "normal").await;
    assert_eq!((status, at), (StatusCode::OK, 33)); // 22 + 10 + 1
}

#[tokio::test(start_paused = true)]
async fn a_pinned_model_stays_and_what_does_not_fit_beside_it_is_refused() {
    let mut config = one_of_three();
    config.policy = SwapPolicy::Memory(vec![("all".into(), 2.0)]);
    config.models[0].pinned = true;
    config.models[2].memory = Some(2.0);
    let rig = Rig::new(config);
    assert_eq!(rig.ask("b", "normal").await.0, StatusCode::OK);
    let (status, body, _) = rig.ask("c", "normal").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("model_start_failed"), "{body}");
    assert_eq!(rig.world.running(), ["a", "b"]);
    let models = rig.swap.models();
    assert!(models[2].last_error.as_ref().unwrap().contains("pinned"));
}

#[tokio::test(start_paused = true)]
async fn the_default_model_comes_back_after_the_rush() {
    let mut config = one_of_three();
    config.default = Some("a".into());
    let rig = Rig::new(config);
    rig.ask("b", "normal").await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.world.running(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn another_configuration_restarts_only_what_is_different() {
    let mut config = one_of_three();
    config.policy = SwapPolicy::Memory(vec![("all".into(), 3.0)]);
    let rig = Rig::new(config.clone());
    tokio::join!(
        rig.ask("a", "normal"),
        rig.ask("b", "normal"),
        rig.ask("c", "normal")
    );
    let served = rig.send("b", "normal").await;
    // `a` is as before but for its slots, `b` is another process, `c` has left, and `d` is new.
    config.models[0].concurrency = 3;
    config.models[1].cmd = "other".into();
    config.models.remove(2);
    config.models.push(model("d", 1.0));
    rig.swap.reconfigure(config).unwrap();
    rig.settle().await;
    assert_eq!(rig.ask("c", "normal").await.0, StatusCode::NOT_FOUND);
    assert_eq!(served.await.unwrap().0, StatusCode::OK);
    let (a, b, d) = tokio::join!(
        rig.ask("a", "normal"),
        rig.ask("b", "normal"),
        rig.ask("d", "normal")
    );
    assert_eq!([a.0, b.0, d.0], [StatusCode::OK; 3]);
    assert_eq!(rig.world.running(), ["a", "b", "d"]);
    let mut log = rig.world.log();
    log.sort();
    let expected = [
        "start a", "start b", "start b", "start c", "start d", "stop b", "stop c",
    ];
    assert_eq!(log, expected);
    let models = rig.swap.models();
    let names: Vec<_> = models.iter().map(|model| &*model.name).collect();
    assert_eq!(names, ["a", "b", "d"]);
    let endpoints = rig.router.endpoints();
    assert_eq!(
        endpoints
            .iter()
            .find(|it| it.name() == "a")
            .unwrap()
            .limit(),
        3
    );
    assert_eq!(rig.world.astray.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn swapped_models_and_others_are_in_one_router() {
    let url = http::Uri::from_static("http://127.0.0.1:1");
    let fixed = Endpoint::new("fixed", url).model(Model::new("f"));
    let registry = Registry::new(vec![fixed.clone()]).unwrap();
    let routing = RoutingConfig::default()
        .alias("gpt", "a")
        .fallbacks("b", ["a"]);
    let mut config = one_of_three();
    config.policy = SwapPolicy::Memory(vec![("all".into(), 2.0)]);
    let rig = Rig::with(config, RouteLayer::builder(registry).routing(routing));
    assert_eq!(rig.ask("gpt", "normal").await.1, "a");
    // `b` can't be started: its fallback serves.
    rig.world.fail_next("b", 1);
    assert_eq!(rig.ask("b", "normal").await.1, "a");
    // The others change, and these stay.
    let changes = rig.router.change_endpoints(|endpoints| {
        assert_eq!(endpoints.len(), 1);
        endpoints.clear();
    });
    assert_eq!(changes.unwrap().removed, ["fixed"]);
    assert_eq!(rig.ask("a", "normal").await.1, "a");
    assert_eq!(rig.ask("f", "normal").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_model_with_the_name_of_another_launchers_endpoint_is_left_out() {
    let rig = Rig::new(one_of_three());
    let url = http::Uri::from_static("http://127.0.0.1:1");
    let other = Endpoint::new("d", url).model(Model::new("other"));
    let other = Registry::new(vec![other]).unwrap();
    let launcher = rig.router.on_demand(other).unwrap();
    let mut config = one_of_three();
    config.models.push(model("d", 1.0));
    config.models.push(model("e", 1.0));
    rig.swap.reconfigure(config.clone()).unwrap();
    rig.settle().await;
    let names = || -> Vec<String> {
        let endpoints = rig.router.endpoints();
        let mut names: Vec<_> = endpoints.iter().map(|it| it.name().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["a", "b", "c", "d", "e"]);
    assert_eq!(rig.ask("d", "normal").await.0, StatusCode::NOT_FOUND);
    assert_eq!(rig.ask("e", "normal").await.0, StatusCode::OK);
    assert!(launcher.start("d", None).is_ok());

    launcher.set_endpoints(Registry::default()).unwrap();
    rig.swap.reconfigure(config).unwrap();
    rig.settle().await;
    assert_eq!(names(), ["a", "b", "c", "d", "e"]);
    assert_eq!(rig.ask("d", "normal").await.0, StatusCode::OK);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let url = http::Uri::from_static("http://127.0.0.1:1");
    let registry = Registry::new(vec![Endpoint::new("a", url)]).unwrap();
    let built = SwapLayer::builder(one_of_three())
        .route(RouteLayer::builder(registry))
        .try_build();
    let error = built.unwrap_err();
    assert!(matches!(error, InvalidSwapLayer::Registry(_)), "{error}");
    assert!(error.to_string().contains("\"a\""), "{error}");
    let empty = RouteLayer::builder(Registry::new(Vec::new()).unwrap());
    let sheds = empty.queue(QueueConfig::default().overflow(Overflow::Shed));
    let error = SwapLayer::builder(one_of_three()).route(sheds).try_build();
    let error = error.unwrap_err().to_string();
    assert!(error.contains("`overflow` is \"shed\""), "{error}");
    let twice = SwapConfig::memory(1.0)
        .model(model("a", 1.0))
        .model(model("a", 1.0));
    let error = SwapLayer::builder(twice).try_build().unwrap_err();
    assert!(matches!(error, InvalidSwapLayer::Swap(_)), "{error}");
}
