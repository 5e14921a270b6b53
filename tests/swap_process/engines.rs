//! Engines at their worst, and ports and systems at theirs.

use std::net::TcpListener;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use rustix::process::{Pid, Signal, kill_process};
use tower::{Layer, ServiceExt};
use tower_triage::SwapLayer;
use tower_triage::route::{Route, RouteBody};
use tower_triage::swap::{ModelState, SwapConfig, SwapHandle, Unload};
use tower_triage::upstream::Forward;

use super::*;

type Body = RouteBody<Full<Bytes>>;
pub(super) type Service = Route<Forward<Body>>;

pub(super) fn layer(model: SwapModel) -> (Service, SwapHandle) {
    let config = SwapConfig::memory(1.0).model(model.memory(1.0));
    let layer = SwapLayer::builder(config).try_build().unwrap();
    (layer.layer(Forward::new()), layer.handle())
}

pub(super) async fn ask(service: &Service, path: &str) -> (StatusCode, String) {
    let body = Full::new(Bytes::from(r#"{"model": "m"}"#));
    let request = Request::post(path).body(body).unwrap();
    let response = soon(service.clone().oneshot(request)).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn send(signal: Signal, pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn an_engine_that_is_frozen_is_taken_for_ended() {
    let mut model = server();
    model.health_interval = Some(Duration::from_millis(50));
    let mark = Mark::on(&mut model);
    let (service, handle) = layer(model);
    assert_eq!(ask(&service, "/asks").await.0, StatusCode::OK);
    send(Signal::STOP, mark.pids()[0]);
    // It has not read the request, so the next process serves it.
    assert_eq!(ask(&service, "/asks").await.0, StatusCode::OK);
    soon(handle.shutdown()).await;
    mark.until_count(0).await;
}

#[tokio::test]
async fn an_engine_that_is_frozen_is_stopped() {
    let mut model = server();
    model.stop_grace = Duration::from_millis(100);
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    send(Signal::STOP, mark.pids()[0]);
    soon(instance.stop()).await;
    assert!(mark.pids().is_empty());
}

#[tokio::test]
async fn an_engine_that_hangs_again_is_noticed_again() {
    let mut model = server();
    model.health_interval = None;
    model.hang_timeout = Some(Duration::from_millis(100));
    let (service, handle) = layer(model);
    for _ in 0..3 {
        let (status, body) = ask(&service, "/slow/600000").await;
        assert_eq!(status, StatusCode::BAD_GATEWAY);
        assert!(body.contains("model_crashed"), "{body}");
    }
    soon(handle.shutdown()).await;
}

#[tokio::test]
async fn an_engine_that_listens_no_more_is_taken_for_ended() {
    let mut model = server();
    model.health_interval = Some(Duration::from_millis(50));
    let (service, handle) = layer(model);
    assert_eq!(ask(&service, "/deaf").await.0, StatusCode::OK);
    let served = async { while ask(&service, "/asks").await.0 != StatusCode::OK {} };
    soon(served).await;
    let error = handle.models()[0].last_error.clone().unwrap();
    let reasons = ["it failed its health checks", "it refuses connections"];
    let is_told = reasons.iter().any(|reason| error.starts_with(reason));
    assert!(is_told, "{error}");
    soon(handle.shutdown()).await;
}

#[tokio::test]
async fn an_engine_that_refuses_connections_is_noticed_by_a_request() {
    let mut model = server();
    model.health_interval = Some(HOUR);
    let (service, handle) = layer(model);
    assert_eq!(ask(&service, "/deaf").await.0, StatusCode::OK);
    let mut failed = 0;
    while ask(&service, "/asks").await.0 != StatusCode::OK {
        failed += 1;
        assert!(failed < 10, "it is still asked");
    }
    let error = handle.models()[0].last_error.clone().unwrap();
    assert_eq!(error, "it refuses connections");
    soon(handle.shutdown()).await;
}

#[tokio::test]
async fn each_request_that_an_engine_resets_is_answered() {
    let mut model = server();
    model.health_interval = Some(Duration::from_millis(50));
    let (service, handle) = layer(model);
    assert_eq!(ask(&service, "/asks").await.0, StatusCode::OK);
    _ = ask(&service, "/resets/on").await;
    for _ in 0..10 {
        assert_eq!(ask(&service, "/asks").await.0, StatusCode::BAD_GATEWAY);
    }
    assert_eq!(handle.models()[0].state, ModelState::Loaded);
    assert_eq!(ask(&service, "/resets/off").await.0, StatusCode::OK);
    soon(handle.shutdown()).await;
}

/// The port in the environment of a process.
fn port(pid: u32) -> Option<u16> {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environ.split(|&byte| byte == 0);
    let port = entries.find_map(|entry| entry.strip_prefix(b"SERVE_PORT="))?;
    std::str::from_utf8(port).ok()?.parse().ok()
}

#[tokio::test]
async fn a_port_that_is_taken_before_the_engine_listens_fails_its_start() {
    let mut model = server();
    model.env.insert("SERVE_DELAY_MS".into(), "1500".into());
    let mark = Mark::on(&mut model);
    let (service, handle) = layer(model);
    let waits = tokio::spawn({
        let service = service.clone();
        async move { ask(&service, "/asks").await }
    });
    let pid = mark.until_count(1).await[0];
    until(|| port(pid).is_some()).await;
    let taken = TcpListener::bind(("127.0.0.1", port(pid).unwrap())).unwrap();
    let (status, body) = soon(waits).await.unwrap();
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("model_start_failed"), "{body}");
    assert_eq!(handle.models()[0].state, ModelState::Failed);
    // The port is still taken.
    let served = async { while ask(&service, "/asks").await.0 != StatusCode::OK {} };
    soon(served).await;
    drop(taken);
    soon(handle.shutdown()).await;
}

#[tokio::test]
async fn after_two_starts_with_daemons_there_is_no_third() {
    let mut model = server();
    let program = std::mem::take(&mut model.cmd);
    model.cmd = format!("/bin/sh -c 'setsid \"$@\" & sleep 3600' sh {program}");
    let mark = Mark::on(&mut model);
    let (service, handle) = layer(model);
    // A daemon keeps its port, and is in no way of the next start.
    for daemons in 1..3 {
        assert_eq!(ask(&service, "/asks").await.0, StatusCode::OK);
        handle.unload("m", Unload::Drain).unwrap();
        until(|| handle.models()[0].state == ModelState::Unloaded).await;
        mark.until_count(daemons).await;
    }
    let daemons = mark.pids();
    let (status, body) = ask(&service, "/asks").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert_eq!(mark.pids(), daemons);
    let error = handle.models()[0].last_error.clone().unwrap();
    for pid in &daemons {
        assert!(error.contains(&pid.to_string()), "{error}");
    }
    daemons.into_iter().for_each(|pid| send(Signal::KILL, pid));
    let served = async { while ask(&service, "/asks").await.0 != StatusCode::OK {} };
    soon(served).await;
    soon(handle.shutdown()).await;
    mark.pids()
        .into_iter()
        .for_each(|pid| send(Signal::KILL, pid));
}

#[tokio::test]
async fn odd_values_of_variables_come_through() {
    let mut model = server();
    let odd = "a b\n\"'$HOME ${PORT}\\ =é\u{1f600}\t${PID}";
    model.env.insert("ODD".into(), odd.into());
    let instance = started(model).await;
    let port = instance.url().port_u16().unwrap();
    let expected = odd.replace("${PORT}", &port.to_string());
    assert_eq!(get(&*instance, "/env/ODD").await.1, expected);
}

#[tokio::test]
async fn bytes_without_a_line_and_without_a_meaning_are_read() {
    let mut model =
        script("head -c 10000000 /dev/urandom; head -c 10000000 /dev/zero | tr \"\\0\" x; exit 4");
    model.health_path = Some("/health".into());
    let error = start(launch(model)).await.expect_err("it ends");
    assert!(error.reason.contains("exit status: 4"), "{error}");
    assert!(error.output.len() <= 20, "{error:?}");
}

#[tokio::test]
async fn two_hundred_models_are_unloaded_at_once() {
    let mut config = SwapConfig::memory(200.0);
    let mut one = script("sleep 3600 & wait");
    let mark = Mark::on(&mut one);
    for nth in 0..200 {
        let mut model = one.clone().memory(1.0);
        model.model.name = format!("m{nth}");
        config = config.model(model);
    }
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let handle = layer.handle();
    for nth in 0..200 {
        handle.load(&format!("m{nth}")).unwrap();
    }
    mark.until_count(400).await;
    until(|| {
        handle
            .models()
            .iter()
            .all(|model| model.state == ModelState::Loaded)
    })
    .await;
    handle.unload_all(Unload::Drain);
    until(|| {
        handle
            .models()
            .iter()
            .all(|model| model.state == ModelState::Unloaded)
    })
    .await;
    assert!(mark.pids().is_empty());
    soon(handle.shutdown()).await;
}
