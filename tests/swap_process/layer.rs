//! Requests through a `SwapLayer` to real processes.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt};
use tower_triage::SwapLayer;
use tower_triage::route::{Route, RouteBody};
use tower_triage::swap::{ModelState, SwapConfig, Unload};
use tower_triage::upstream::Forward;

use super::*;

type Body = RouteBody<Full<Bytes>>;
type Service = Route<Forward<Body>>;

/// Models of which one can run at a time, and are stopped whenever they are idle.
fn restless(names: &[&str]) -> SwapConfig {
    let mut config = SwapConfig::memory(1.0);
    config.swap_after = Duration::ZERO;
    config.min_loaded = Duration::ZERO;
    for name in names {
        let mut model = server().memory(1.0).concurrency(4);
        model.model.name = (*name).to_owned();
        model.ttl = Some(Duration::from_millis(1));
        config = config.model(model);
    }
    config
}

async fn ask(service: Service, model: &str, path: &str) -> (StatusCode, String) {
    let body = Full::new(Bytes::from(format!(r#"{{"model": "{model}"}}"#)));
    let request = Request::post(path).body(body).unwrap();
    let response = soon(service.oneshot(request)).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

type Sent = JoinHandle<(StatusCode, String)>;

/// Sends so many requests for `a` at once.
fn send(service: &Service, count: usize) -> Vec<Sent> {
    let sent = (0..count).map(|_| tokio::spawn(ask(service.clone(), "a", "/asks")));
    sent.collect()
}

async fn assert_served(sent: Vec<Sent>) {
    let mut failed = 0;
    for sent in sent {
        failed += u32::from(sent.await.unwrap().0 != StatusCode::OK);
    }
    assert_eq!(failed, 0, "of those that were sent");
}

#[tokio::test]
async fn a_crash_and_a_kill_are_told_apart() {
    let mut config = restless(&["a"]);
    config.models[0].ttl = None;
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let service = layer.layer(Forward::<Body>::new());
    let (status, body) = ask(service.clone(), "a", "/exit").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(body.contains("model_crashed"), "{body}");
    // It is started again once its end is known.
    until(|| layer.handle().models()[0].state != ModelState::Loaded).await;
    assert_eq!(ask(service.clone(), "a", "/asks").await.0, StatusCode::OK);
    let served = tokio::spawn(ask(service.clone(), "a", "/slow/600000"));
    until(|| layer.handle().models()[0].in_flight == 1).await;
    layer.handle().unload("a", Unload::Kill).unwrap();
    let (status, body) = served.await.unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("model_unloaded"), "{body}");
    assert_eq!(ask(service, "a", "/asks").await.0, StatusCode::OK);
    soon(layer.handle().shutdown()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_never_reaches_a_process_that_is_being_stopped() {
    let names = ["a", "b", "c"];
    let layer = SwapLayer::builder(restless(&names)).try_build().unwrap();
    let service = Arc::new(layer.layer(Forward::<Body>::new()));
    let tasks = (0..6).map(|nth| {
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            for round in 0..20 {
                let name = names[(nth + round) % 3];
                let (status, body) = ask((*service).clone(), name, "/slow/1").await;
                assert_eq!(status, StatusCode::OK, "{body}");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    soon(layer.handle().shutdown()).await;
    for model in layer.handle().models() {
        assert_eq!((model.running, model.in_flight, model.waiting), (0, 0, 0));
    }
}

#[tokio::test]
async fn what_waits_is_not_sent_to_a_process_that_crashed() {
    let mut config = restless(&["a"]);
    config.models[0].concurrency = 1;
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let service = layer.layer(Forward::<Body>::new());
    let crashes = tokio::spawn(ask(service.clone(), "a", "/exit"));
    let wait = send(&service, 90);
    let (status, body) = crashes.await.unwrap();
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{body}");
    assert_served(wait).await;
    soon(layer.handle().shutdown()).await;
}

#[tokio::test]
async fn no_waiter_goes_to_a_process_that_crashed_in_mid_stream() {
    let mut config = restless(&["a"]);
    config.models[0].concurrency = 12;
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let service = layer.layer(Forward::<Body>::new());
    let streams = (0..12).map(|_| {
        let body = Full::new(Bytes::from(r#"{"model": "a"}"#));
        let request = Request::post("/cut").body(body).unwrap();
        let answer = service.clone().oneshot(request);
        tokio::spawn(async move { answer.await.unwrap().into_body().collect().await })
    });
    let streams: Vec<_> = streams.collect();
    until(|| layer.handle().models()[0].in_flight == 12).await;
    let wait = send(&service, 24);
    for stream in streams {
        assert!(soon(stream).await.unwrap().is_err(), "it breaks off");
    }
    assert_served(wait).await;
    soon(layer.handle().shutdown()).await;
}

#[tokio::test]
async fn a_crash_is_known_though_a_daemon_holds_the_output() {
    let mut config = restless(&["a"]);
    let model = &mut config.models[0];
    let program = std::mem::take(&mut model.cmd);
    // The process that has left the group holds the output of the server.
    model.cmd = format!("/bin/sh -c 'setsid sleep 3600 & exec \"$@\"' sh {program}");
    (model.ttl, model.concurrency) = (None, 1);
    let mark = Mark::on(model);
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let service = layer.layer(Forward::<Body>::new());
    let crashes = tokio::spawn(ask(service.clone(), "a", "/exit"));
    let wait = send(&service, 24);
    assert_eq!(crashes.await.unwrap().0, StatusCode::BAD_GATEWAY);
    assert_served(wait).await;
    soon(layer.handle().shutdown()).await;
    mark.pids().into_iter().for_each(kill);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_taken_for_an_engine_that_hangs() {
    let mut config = restless(&["a"]);
    config.models[0].ttl = None;
    config.models[0].hang_timeout = Some(Duration::from_secs(2));
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let service = layer.layer(Forward::<Body>::new());
    let body = Full::new(Bytes::from(r#"{"model": "a"}"#));
    let bytes = 20_000_000;
    let request = Request::post(format!("/flood/{bytes}")).body(body).unwrap();
    let response = soon(service.clone().oneshot(request)).await.unwrap();
    // For several times as long as an engine may hang.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let read = soon(response.into_body().collect()).await.unwrap();
    assert_eq!(read.to_bytes().len(), bytes);
    // One that hangs is still noticed.
    let (status, body) = ask(service, "a", "/slow/600000").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{body}");
    soon(layer.handle().shutdown()).await;
}

/// A model that does not end when it is asked to, and may take an hour for it.
fn stubborn(stop_cmd: Option<&str>) -> (SwapConfig, Mark) {
    let mut config = restless(&["a"]);
    let model = &mut config.models[0];
    let program = std::mem::take(&mut model.cmd);
    model.cmd = format!("/bin/sh -c 'trap \"\" TERM; sleep 3600 & \"$@\"' sh {program}");
    (model.ttl, model.stop_grace) = (None, HOUR);
    model.stop_cmd = stop_cmd.map(str::to_owned);
    let mark = Mark::on(model);
    (config, mark)
}

#[tokio::test]
async fn a_kill_hastens_a_stop() {
    // The shell, its child and the server; and the command that stops them, with its child.
    for (stop_cmd, processes) in [(None, 3), (Some("/bin/sh -c \"sleep 3600; true\""), 5)] {
        let (config, mark) = stubborn(stop_cmd);
        let layer = SwapLayer::builder(config).try_build().unwrap();
        let service = layer.layer(Forward::<Body>::new());
        let handle = layer.handle();
        assert_eq!(ask(service.clone(), "a", "/asks").await.0, StatusCode::OK);
        let mut events = handle.events();
        handle.unload("a", Unload::Drain).unwrap();
        assert_eq!(events.next().await.unwrap().state, ModelState::Unloading);
        mark.until_count(processes).await;
        let waits = tokio::spawn(ask(service.clone(), "a", "/asks"));
        until(|| handle.models()[0].waiting == 1).await;
        handle.unload("a", Unload::Kill).unwrap();
        let (status, body) = soon(waits).await.unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("model_unloaded"), "{body}");
        let event = soon(events.next()).await.unwrap();
        assert_eq!((event.state, event.error), (ModelState::Unloaded, None));
        mark.until_count(0).await;
        // It starts anew, and is stopped as gently as ever.
        assert_eq!(ask(service.clone(), "a", "/asks").await.0, StatusCode::OK);
        handle.unload("a", Unload::Drain).unwrap();
        mark.until_count(processes).await;
        until(|| handle.models()[0].state == ModelState::Unloading).await;
        handle.unload_all(Unload::Kill);
        soon(handle.shutdown()).await;
        mark.until_count(0).await;
    }
}

#[tokio::test]
async fn a_kill_ends_what_is_drained() {
    let (config, mark) = stubborn(None);
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let service = layer.layer(Forward::<Body>::new());
    let handle = layer.handle();
    let served = tokio::spawn(ask(service.clone(), "a", "/slow/600000"));
    until(|| handle.models()[0].in_flight == 1).await;
    handle.unload("a", Unload::Drain).unwrap();
    let waits = tokio::spawn(ask(service, "a", "/asks"));
    until(|| handle.models()[0].waiting == 1).await;
    handle.unload("a", Unload::Kill).unwrap();
    for answered in [served, waits] {
        let (status, body) = soon(answered).await.unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(body.contains("model_unloaded"), "{body}");
    }
    mark.until_count(0).await;
    soon(handle.shutdown()).await;
}

#[tokio::test]
async fn a_kill_hastens_one_that_is_put_to_sleep() {
    let mut config = restless(&["a", "b"]);
    config.models[0].sleep_path = Some("/slow/600000".into());
    config.models[0].wake_path = Some("/asks".into());
    config.models[0].ttl = None;
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let service = layer.layer(Forward::<Body>::new());
    let handle = layer.handle();
    assert_eq!(ask(service.clone(), "a", "/asks").await.0, StatusCode::OK);
    let waits = tokio::spawn(ask(service.clone(), "b", "/asks"));
    until(|| handle.models()[0].state == ModelState::Unloading).await;
    handle.unload("a", Unload::Kill).unwrap();
    assert_eq!(soon(waits).await.unwrap().0, StatusCode::OK);
    assert_eq!(handle.models()[0].state, ModelState::Unloaded);
    soon(handle.shutdown()).await;
}

#[tokio::test]
async fn what_sleeps_is_stopped_by_its_command() {
    let file = std::env::temp_dir().join(format!("stopped-{}", std::process::id()));
    let mut config = restless(&["a", "b"]);
    let model = &mut config.models[0];
    (model.sleep_path, model.wake_path) = (Some("/asks".into()), Some("/asks".into()));
    let command = format!("/bin/sh -c 'touch {}; kill ${{PID}}'", file.display());
    (model.ttl, model.stop_cmd) = (None, Some(command));
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let service = layer.layer(Forward::<Body>::new());
    let handle = layer.handle();
    for name in ["a", "b"] {
        let asked = ask(service.clone(), name, "/asks").await;
        assert_eq!(asked.0, StatusCode::OK);
    }
    assert_eq!(handle.models()[0].state, ModelState::Sleeping);
    soon(handle.shutdown()).await;
    std::fs::remove_file(file).expect("its command has run");
}
