//! Operators and launchers at their worst: numbers of instances that are used again, launchers that panic or are slow.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, sleep, timeout};
use tower_triage::admit::TargetWait;
use tower_triage::route::RoutingConfig;
use tower_triage::swap::{AbandonedLoad, SwapConfig, SwapModel, SwapPolicy, Unload};
use tower_triage::{QueueConfig, RouteLayer, endpoints::Registry};

use crate::fake::{LOAD, Rig, model, one_of_three};

fn budget(mut config: SwapConfig, budget: f64) -> SwapConfig {
    config.policy = SwapPolicy::Memory(vec![("all".into(), budget)]);
    config
}

#[tokio::test(start_paused = true)]
async fn a_new_model_is_not_started_for_a_waiter_of_one_that_left() {
    let mut config = one_of_three();
    let mut rig = Rig::new(config.clone());
    rig.answer = Duration::from_secs(60);
    let served = rig.send("a", "normal").await;
    sleep(Duration::from_secs(11)).await;
    let waits = rig.send("b", "normal").await;
    rig.settle().await;
    config.models.remove(1);
    config.models.push(model("d", 1.0));
    rig.swap.reconfigure(config).unwrap();
    assert_eq!(waits.await.unwrap().0, StatusCode::NOT_FOUND);
    assert_eq!(served.await.unwrap().0, StatusCode::OK);
    sleep(Duration::from_secs(60)).await;
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.world.log(), ["start a"]);
    assert_eq!(rig.world.running(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_load_goes_on_when_what_is_in_the_way_has_become_idle() {
    let mut rig = Rig::new(one_of_three());
    rig.answer = Duration::from_secs(30);
    let served = rig.send("a", "normal").await;
    sleep(Duration::from_secs(11)).await;
    rig.swap.load("b").unwrap();
    assert_eq!(served.await.unwrap().2, 40);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.state("b"), "loaded");
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_panics_has_ended() {
    let mut config = one_of_three();
    config.models[0].ttl = Some(Duration::from_secs(5));
    let rig = Rig::new(config);
    rig.ask("a", "normal").await;
    rig.world.panic_at("stop a");
    sleep(Duration::from_secs(10)).await;
    let asked = timeout(Duration::from_secs(60), rig.ask("a", "normal")).await;
    assert_eq!(asked.unwrap().0, StatusCode::OK);
    rig.world.panic_at("stop a");
    sleep(Duration::from_secs(10)).await;
    rig.router.close();
    let shutdown = timeout(Duration::from_secs(60), rig.swap.shutdown()).await;
    shutdown.expect("nothing runs any more");
}

#[tokio::test(start_paused = true)]
async fn a_stop_for_another_model_that_panics_has_ended() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    rig.world.panic_at("stop a");
    sleep(Duration::from_secs(10)).await;
    let asked = timeout(Duration::from_secs(60), rig.ask("b", "normal")).await;
    assert_eq!(asked.unwrap().0, StatusCode::OK);
    assert_eq!(rig.state("a"), "unloaded");
}

#[tokio::test(start_paused = true)]
async fn a_kill_that_panics_has_ended() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    rig.world.panic_at("kill a");
    rig.world.crash("a");
    rig.settle().await;
    let asked = timeout(Duration::from_secs(60), rig.ask("a", "normal")).await;
    assert_eq!(asked.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_panic_where_the_driver_asks_ends_no_other_model() {
    let rig = Rig::new(one_of_three());
    rig.world.panic_at("url a");
    assert_eq!(
        rig.ask("a", "normal").await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    assert_eq!(rig.state("a"), "failed");
    assert!(rig.world.is_empty());
    rig.world.panic_at("activity b");
    assert_eq!(rig.ask("b", "normal").await.0, StatusCode::OK);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.world.panicked.load(SeqCst), 2);
    assert_eq!(rig.ask("b", "normal").await.0, StatusCode::OK);
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_killed_while_it_does_not_run_is_stopped_gently_later() {
    let rig = Rig::new(one_of_three());
    rig.swap.unload("a", Unload::Kill).unwrap();
    rig.settle().await;
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(10)).await;
    rig.ask("b", "normal").await;
    assert_eq!(rig.world.log(), ["start a", "stop a", "start b"]);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_count_for_the_model_they_asked_for() {
    let routing = RoutingConfig::default()
        .alias("gpt", "b")
        .fallbacks("b", ["a"])
        .fallback_when(tower_triage::endpoints::FallbackWhen::Busy);
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap()).routing(routing);
    let mut rig = Rig::with(budget(one_of_three(), 3.0), route);
    rig.answer = Duration::from_secs(100);
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(rig.send("gpt", "normal").await);
    }
    rig.settle().await;
    let waiting: Vec<_> = rig.swap.models().iter().map(|it| it.waiting).collect();
    assert_eq!(waiting, [0, 4, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_failed_is_tried_at_once_when_it_is_configured_differently() {
    let changes: [fn(&mut SwapModel); 4] = [
        |a| a.cmd = "other".into(),
        |a| a.proxy = Some("http://127.0.0.1:9".parse().unwrap()),
        |a| a.start_timeout = Some(Duration::from_secs(999)),
        |a| a.progress_path = Some("/other".into()),
    ];
    for change in changes {
        let mut config = one_of_three();
        let rig = Rig::new(config.clone());
        rig.world.fail_next("a", 5);
        for _ in 0..5 {
            rig.ask("a", "normal").await;
            sleep(Duration::from_secs(20)).await;
        }
        rig.world.fail_next("a", 1);
        rig.ask("a", "normal").await;
        rig.swap.reconfigure(config.clone()).unwrap();
        rig.settle().await;
        let (status, ..) = rig.ask("a", "normal").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);

        change(&mut config.models[0]);
        rig.swap.reconfigure(config).unwrap();
        rig.settle().await;
        let begun = Instant::now();
        rig.ask("a", "normal").await;
        assert_eq!(rig.world.running(), ["a"]);
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_goes_to_an_instance_that_has_ended_and_is_being_killed() {
    let mut config = one_of_three();
    config.swap_after = Duration::ZERO;
    config.min_loaded = Duration::ZERO;
    config.models[0].concurrency = 2;
    let mut rig = Rig::new(config);
    *rig.world.kill.lock().unwrap() = Duration::from_secs(60);
    rig.answer = Duration::from_secs(30);
    let _served = rig.send("a", "normal").await;
    sleep(Duration::from_secs(12)).await;
    rig.world.crash("a");
    rig.settle().await;
    let other = rig.send("b", "normal").await;
    rig.settle().await;
    other.abort();
    rig.settle().await;
    rig.settle().await;
    let asked = rig.send("a", "normal").await;
    sleep(Duration::from_secs(200)).await;
    assert_eq!(asked.await.unwrap().0, StatusCode::OK);
    assert_eq!(rig.world.astray.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_cannot_be_shown_is_refused_later_too() {
    let mut config = one_of_three();
    let rig = Rig::new(config.clone());
    config.models.push(model("d\n", 1.0));
    assert!(rig.swap.reconfigure(config).is_err());
    let asked = timeout(Duration::from_secs(60), rig.ask("a", "normal")).await;
    assert_eq!(asked.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn what_is_served_finishes_though_the_layer_is_gone() {
    let mut rig = Rig::new(one_of_three());
    rig.answer = Duration::from_secs(30);
    let world = rig.world.clone();
    let served = rig.send("a", "normal").await;
    sleep(Duration::from_secs(12)).await;
    drop(rig);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.running(), ["a"]);
    assert_eq!(served.await.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn instances_come_and_go() {
    let mut config = budget(one_of_three(), 3.0);
    config.models[0].instances = 3;
    let three = config.clone();
    config.models[0].instances = 1;
    let one = config;
    // More come than one instance serves.
    let queue = QueueConfig::default()
        .max_size(1_000)
        .target_wait(TargetWait::Off);
    let queue = queue.max_wait(Duration::from_secs(600));
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap()).queue(queue);
    let rig = Rig::with(one.clone(), route);
    for round in 0..6 {
        let mut sent = Vec::new();
        for _ in 0..10 {
            sent.push(rig.send("a", "normal").await);
        }
        sleep(Duration::from_secs(12 + round)).await;
        rig.swap.reconfigure(three.clone()).unwrap();
        rig.settle().await;
        for _ in 0..20 {
            sent.push(rig.send("a", "normal").await);
        }
        sleep(Duration::from_secs(15 - round)).await;
        rig.swap.reconfigure(one.clone()).unwrap();
        if round % 2 == 0 {
            rig.swap.reconfigure(three.clone()).unwrap();
        }
        for sent in sent {
            let (status, body, _) = sent.await.unwrap();
            assert_eq!((status, &*body), (StatusCode::OK, &*body));
        }
    }
    assert_eq!(rig.world.astray.load(SeqCst), 0);
    assert!(rig.world.most_present.load(SeqCst) <= 3);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_comes_back_is_not_taken_for_one_that_left() {
    let three = one_of_three();
    let rig = Rig::new(three.clone());
    let with = |names: &[&str]| {
        let mut config = three.clone();
        config
            .models
            .retain(|model| names.contains(&&*model.model.name));
        config
    };
    // `c` comes back in the pool of `a`, and leaves; then `a` comes back there.
    for names in [&["b"][..], &["b"], &["b", "c"], &["b"], &["b"], &["a", "b"]] {
        rig.swap.reconfigure(with(names)).unwrap();
        rig.settle().await;
    }
    for name in ["a", "b"] {
        assert_eq!(rig.ask(name, "normal").await.0, StatusCode::OK, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_request_is_refused_for_a_load() {
    for target in [2, 3, 30] {
        let mut queue = tower_triage::QueueConfig::default().max_size(1_000);
        queue.room.max_wait = Some(Duration::from_secs(600));
        queue.room.target_wait =
            tower_triage::admit::TargetWait::After(Duration::from_secs(target));
        let mut config = one_of_three();
        for model in &mut config.models {
            model.concurrency = 4;
        }
        let route = RouteLayer::builder(Registry::new(vec![]).unwrap()).queue(queue);
        let rig = Rig::with(config, route);
        for round in 0..30 {
            // No more than are served at once, but for those that come while the model is loaded.
            for name in ["a", "b"] {
                let mut sent = Vec::new();
                for _ in 0..6 {
                    sent.push(rig.send(name, "normal").await);
                    sleep(Duration::from_millis(500)).await;
                }
                for sent in sent {
                    let (status, body, _) = sent.await.unwrap();
                    assert_eq!(
                        status,
                        StatusCode::OK,
                        "target {target} round {round} {name}: {body}"
                    );
                }
                sleep(Duration::from_secs(6)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_streams_ends_though_the_service_is_gone() {
    use bytes::Bytes;
    use http_body_util::{BodyExt, Channel, Full};
    use tower::{Layer, ServiceExt};

    let mut config = one_of_three();
    config.models[0].ttl = Some(Duration::from_secs(5));
    let rig = Rig::new(config);
    let world = rig.world.clone();
    let service = tower::service_fn(async |_: http::Request<_>| {
        let (mut sender, body) = Channel::<Bytes>::new(1);
        tokio::spawn(async move {
            sleep(Duration::from_secs(60)).await;
            _ = sender.send_data(Bytes::from("end")).await;
        });
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    });
    let service = rig.layer.layer(service);
    let body = Full::new(Bytes::from(r#"{"model": "a"}"#));
    let request = http::Request::post("/v1/chat/completions").body(body);
    let response = service.oneshot(request.unwrap()).await.unwrap();
    drop(rig);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(world.running(), ["a"]);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "end"
    );
    sleep(Duration::from_secs(1)).await;
    assert!(world.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_streams_is_seen_to_work_between_its_health_checks() {
    use bytes::Bytes;
    use http_body_util::{BodyExt, Channel, Full};
    use tower::{Layer, ServiceExt};

    let rig = Rig::new(one_of_three());
    let service = tower::service_fn(async |_: http::Request<_>| {
        let (mut sender, body) = Channel::<Bytes>::new(1);
        tokio::spawn(async move {
            for _ in 0..60 {
                sleep(Duration::from_secs(1)).await;
                _ = sender.send_data(Bytes::from("token")).await;
            }
        });
        Ok::<_, std::convert::Infallible>(http::Response::new(body))
    });
    let service = rig.layer.layer(service);
    let body = Full::new(Bytes::from(r#"{"model": "a"}"#));
    let request = http::Request::post("/v1/chat/completions").body(body);
    let response = service.oneshot(request.unwrap()).await.unwrap();
    response.into_body().collect().await.unwrap();
    // A check waits for an answer for 5 s: there is news in each such span.
    let told = rig.world.activities.load(SeqCst);
    assert!(told > 60 / 5, "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_is_begun_again_is_seen_to_be_loading() {
    let mut config = one_of_three();
    config.models[0].settle = Duration::from_secs(5);
    config.abandoned_load = AbandonedLoad::Abort;
    let rig = Rig::new(config);
    let left = rig.send("a", "normal").await;
    sleep(Duration::from_secs(3)).await;
    left.abort();
    rig.settle().await;
    let waits = rig.send("a", "normal").await;
    sleep(Duration::from_secs(6)).await;
    assert_eq!(rig.world.log(), ["start a", "start a"]);
    assert_eq!(rig.state("a"), "loading");
    assert_eq!(waits.await.unwrap().0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn what_runs_takes_memory_of_the_only_pool_that_is_left() {
    let mut config = one_of_three();
    config.policy = SwapPolicy::Memory(vec![("g0".into(), 1.0), ("g1".into(), 2.0)]);
    let rig = Rig::new(config.clone());
    tokio::join!(
        rig.ask("a", "normal"),
        rig.ask("b", "normal"),
        rig.ask("c", "normal")
    );
    let mut config = budget(config, 3.0);
    config.models.push(model("d", 1.0));
    config.models.push(model("e", 1.0));
    rig.swap.reconfigure(config).unwrap();
    rig.settle().await;
    tokio::join!(rig.ask("d", "normal"), rig.ask("e", "normal"));
    let most = rig.world.most_present.load(SeqCst);
    assert!(most <= 3, "{most}");
}

/// A layer of models that take 20 s to be killed, and while they start, 5 s to settle.
pub(crate) fn slow_to_end(mut config: SwapConfig) -> Rig {
    for model in &mut config.models {
        model.settle = Duration::from_secs(5);
    }
    let rig = Rig::new(config);
    *rig.world.kill.lock().unwrap() = Duration::from_secs(20);
    rig
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_has_ended_before_another_begins() {
    let rig = slow_to_end(one_of_three());
    let left = rig.send("a", "normal").await;
    sleep(Duration::from_secs(1)).await;
    left.abort();
    rig.settle().await;
    assert_eq!(rig.ask("b", "normal").await.2, 1 + 20 + 5 + 10 + 1);
    assert_eq!(rig.world.most_present.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_settles_if_its_launcher_says_nothing() {
    let rig = slow_to_end(one_of_three());
    *rig.world.kill.lock().unwrap() = Duration::from_secs(4);
    rig.world.is_silent.store(true, SeqCst);
    let left = rig.send("a", "normal").await;
    sleep(Duration::from_secs(1)).await;
    left.abort();
    rig.settle().await;
    assert_eq!(rig.ask("b", "normal").await.2, 1 + 5 + 10 + 1);
    assert_eq!(rig.world.most_present.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_unloaded_has_ended_before_it_begins_anew() {
    let rig = slow_to_end(one_of_three());
    let refused = rig.send("a", "normal").await;
    sleep(Duration::from_secs(1)).await;
    rig.swap.unload("a", Unload::Drain).unwrap();
    assert_eq!(refused.await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(rig.ask("a", "normal").await.2, 1 + 20 + 5 + 10 + 1);
    assert_eq!(rig.world.twice.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_kill_hastens_a_stop_for_another_model() {
    let route = RouteLayer::builder(Registry::new(vec![]).unwrap());
    let stop = Duration::from_secs(1_000);
    let rig = Rig::timed(one_of_three(), route, Duration::from_secs(10), stop);
    rig.ask("a", "normal").await;
    sleep(Duration::from_secs(9)).await;
    let waits = rig.send("b", "normal").await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.state("a"), "unloading");
    rig.swap.unload("a", Unload::Kill).unwrap();
    assert_eq!(waits.await.unwrap().2, 30 + 10 + 1);
    assert_eq!(rig.world.log(), ["start a", "stop a", "kill a", "start b"]);
    assert_eq!(rig.state("a"), "unloaded");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_panics_is_an_end() {
    let rig = Rig::new(one_of_three());
    rig.ask("a", "normal").await;
    rig.world.panic_at("ended a");
    rig.world.crash("a");
    rig.settle().await;
    assert_eq!(rig.state("a"), "unloaded");
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
    assert_eq!(rig.world.astray.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_failed_is_refused_until_it_is_tried_again_though_it_is_unloaded() {
    let rig = Rig::new(one_of_three());
    rig.world.fail_next("a", 1);
    rig.ask("a", "normal").await;
    rig.swap.unload("a", Unload::Drain).unwrap();
    rig.settle().await;
    let (status, body, at) = rig.ask("a", "normal").await;
    assert_eq!(
        (status, at),
        (StatusCode::SERVICE_UNAVAILABLE, LOAD.as_secs())
    );
    assert!(body.contains("model_start_failed"), "{body}");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.ask("a", "normal").await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_load_after_a_start_that_is_given_up_as_it_succeeds_is_not_lost() {
    let rig = Rig::new(one_of_three());
    rig.swap.load("a").unwrap();
    sleep(LOAD).await;
    rig.swap.unload("a", Unload::Drain).unwrap();
    rig.swap.load("a").unwrap();
    sleep(LOAD * 2).await;
    assert_eq!(rig.world.log(), ["start a", "stop a", "start a"]);
    assert_eq!(rig.state("a"), "loaded");
}

#[tokio::test(start_paused = true)]
async fn a_layer_of_more_than_a_year_keeps_its_times() {
    let rig = Rig::new(one_of_three());
    sleep(Duration::from_secs(400 * 86_400)).await;
    rig.world.fail_next("a", 1);
    assert_eq!(
        rig.ask("a", "normal").await.0,
        StatusCode::SERVICE_UNAVAILABLE
    );
    // Not by `sleep`, which a driver that is never idle would hold up.
    tokio::time::advance(Duration::from_millis(5)).await;
    let refused = rig.send("a", "normal").await;
    tokio::time::advance(Duration::from_millis(5)).await;
    assert!(refused.is_finished());
}

#[tokio::test(start_paused = true)]
async fn the_last_error_may_be_that_of_any_instance() {
    let mut config = budget(one_of_three(), 2.0);
    config.models[0].instances = 2;
    let mut rig = Rig::new(config);
    rig.answer = LOAD * 3;
    tokio::join!(rig.ask("a", "normal"), rig.ask("a", "normal"));
    assert_eq!(rig.world.running(), ["a", "a#2"]);
    rig.world.crash("a#2");
    rig.settle().await;
    let status = &rig.swap.models()[0];
    assert_eq!((status.state.as_str(), status.running), ("loaded", 1));
    assert_eq!(status.last_error.as_deref(), Some("it fell over"));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_resets_its_requests_is_ejected() {
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use tower::{Layer, ServiceExt};
    use tower_triage::endpoints::{Decision, NoResponse};

    let mut config = budget(one_of_three(), 3.0);
    config.models[0].instances = 2;
    let mut rig = Rig::new(config);
    rig.answer = LOAD * 3;
    tokio::join!(rig.ask("a", "normal"), rig.ask("a", "normal"));
    assert_eq!(rig.world.running(), ["a", "a#2"]);
    let resets = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    for _ in 0..30 {
        let resets = resets.clone();
        let service = rig
            .layer
            .layer(tower::service_fn(move |request: Request<_>| {
                let decision: &Decision = request.extensions().get().unwrap();
                let mut response = Response::new(Full::<Bytes>::default());
                if decision.endpoint.name() == "a" {
                    resets.fetch_add(1, SeqCst);
                    *response.status_mut() = StatusCode::BAD_GATEWAY;
                    response.extensions_mut().insert(NoResponse::Reset);
                }
                async { Ok::<_, std::convert::Infallible>(response) }
            }));
        let body = Full::new(Bytes::from(r#"{"model": "a"}"#));
        let request = Request::post("/v1/chat/completions").body(body);
        service.oneshot(request.unwrap()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
    }
    // Five, and then one each time that it is probed.
    let resets = resets.load(SeqCst);
    assert!((5..=10).contains(&resets), "{resets}");
}

#[tokio::test(start_paused = true)]
async fn a_model_starts_at_once_in_a_pool_in_which_none_is_being_stopped() {
    let mut config = one_of_three();
    config.policy = SwapPolicy::Memory(vec![("g0".into(), 1.0), ("g1".into(), 2.0)]);
    let rig = Rig::new(config);
    assert_eq!(rig.ask("a", "normal").await.2, 11);
    rig.swap.unload("a", Unload::Drain).unwrap();
    rig.settle().await;
    assert_eq!(rig.state("a"), "unloading");
    assert_eq!(rig.ask("b", "normal").await.2, 22);
}
