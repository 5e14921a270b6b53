//! What failed is ended by the command that stops it: that may end more than the process, as a container.

use http::StatusCode;
use tower_triage::SwapLayer;
use tower_triage::swap::{ModelState, SwapConfig, Unload};

use super::engines::{ask, layer};
use super::system::TestDir;
use super::*;

const GRACE: Duration = Duration::from_secs(2);

/// Lets the model be stopped by a command that says in a file that it was run while the process was there. It does not
/// end the process.
fn with_command(model: &mut SwapModel) -> (TestDir, Mark) {
    let dir = TestDir::new();
    let said = dir.path("stopped");
    let command = format!("/bin/sh -c 'kill -0 ${{PID}} && echo >> {said}'");
    (model.stop_cmd, model.stop_grace) = (Some(command), GRACE);
    (dir, Mark::on(model))
}

/// Asserts that it was run once, and that nothing is left.
fn assert_stopped(dir: &TestDir, mark: &Mark) {
    let said = std::fs::read_to_string(dir.path("stopped"));
    assert_eq!(said.as_deref().ok(), Some("\n"), "its command is run once");
    assert!(mark.pids().is_empty());
}

/// A script that would have to listen.
fn silent() -> SwapModel {
    let mut model = script("sleep 3600 & wait");
    model.health_path = Some("/health".into());
    model
}

#[tokio::test]
async fn a_start_that_takes_too_long() {
    let mut model = silent();
    let (dir, mark) = with_command(&mut model);
    let launch = Launch::new(Arc::new(model), Duration::from_millis(100));
    let error = start(launch).await.unwrap_err();
    assert!(error.reason.contains("not ready within"), "{error}");
    assert_stopped(&dir, &mark);
}

#[tokio::test]
async fn a_start_that_is_given_up() {
    let mut model = silent();
    let (dir, mark) = with_command(&mut model);
    let launch = launch(model);
    let cleanup = launch.cleanup.clone();
    tokio::select! {
        result = start(launch) => panic!("{result:?}"),
        _ = mark.until_count(2) => {}
    }
    soon(cleanup.wait()).await;
    assert_stopped(&dir, &mark);
}

/// Lets a script that has to listen say in a file that its signal has asked it to stop.
fn asked_by_signal(dir: &TestDir) -> SwapModel {
    let said = dir.path("stopped");
    let script = format!("trap \"echo >> {said}; exit\" TERM; sleep 3600 & wait");
    let mut model = super::script(&script);
    model.health_path = Some("/health".into());
    model
}

#[tokio::test]
async fn a_start_that_takes_too_long_is_asked_by_its_signal() {
    let dir = TestDir::new();
    let mut model = asked_by_signal(&dir);
    let mark = Mark::on(&mut model);
    let launch = Launch::new(Arc::new(model), Duration::from_secs(5));
    start(launch).await.unwrap_err();
    assert_stopped(&dir, &mark);
}

/// Gives up a start once it runs, after this was done with it.
async fn given_up(model: SwapModel, mark: &Mark, before: impl FnOnce(&Launch)) {
    let launch = launch(model);
    let (cleanup, watched) = (launch.cleanup.clone(), launch.clone());
    tokio::select! {
        result = start(launch) => panic!("{result:?}"),
        _ = mark.until_count(2) => before(&watched),
    }
    soon(cleanup.wait()).await;
}

#[tokio::test]
async fn a_start_that_is_given_up_is_asked_by_its_signal() {
    let dir = TestDir::new();
    let mut model = asked_by_signal(&dir);
    let mark = Mark::on(&mut model);
    given_up(model, &mark, |_| ()).await;
    assert_stopped(&dir, &mark);
}

#[tokio::test]
async fn a_start_that_is_killed_ends_without_its_signal() {
    let dir = TestDir::new();
    let mut model = asked_by_signal(&dir);
    let mark = Mark::on(&mut model);
    given_up(model, &mark, |launch| launch.killed.cancel()).await;
    assert!(mark.pids().is_empty());
    assert!(!std::fs::exists(dir.path("stopped")).unwrap());
}

#[tokio::test]
async fn a_start_that_ignores_its_signal_ends_with_the_grace() {
    let mut model = super::script("trap \"\" TERM; sleep 3600 & wait");
    model.health_path = Some("/health".into());
    model.stop_grace = GRACE;
    let mark = Mark::on(&mut model);
    given_up(model, &mark, |_| ()).await;
    assert!(mark.pids().is_empty());
}

#[tokio::test]
async fn an_engine_that_is_not_healthy_is_asked_by_its_signal() {
    let dir = TestDir::new();
    let (mut model, said) = (server(), dir.path("stopped"));
    let program = std::mem::take(&mut model.cmd);
    model.cmd =
        format!("/bin/sh -c 'trap \"echo >> {said}; exit\" TERM; \"$@\" & wait' sh {program}");
    model.health_interval = Some(Duration::from_millis(50));
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    get(&*instance, "/fail/1000000").await;
    soon(instance.ended()).await;
    soon(instance.kill()).await;
    assert_stopped(&dir, &mark);
}

#[tokio::test]
async fn a_command_that_hangs_holds_up_the_end_for_the_grace() {
    let mut model = silent();
    let mark = Mark::on(&mut model);
    model.stop_cmd = Some("/bin/sh -c 'sleep 3600 & wait'".into());
    model.stop_grace = GRACE;
    let launch = Launch::new(Arc::new(model), Duration::from_millis(100));
    start(launch).await.unwrap_err();
    assert!(mark.pids().is_empty());
}

#[tokio::test]
async fn a_wake_that_fails() {
    let mut model = server();
    (model.sleep_path, model.wake_path) = (Some("/asks".into()), Some("/no".into()));
    let (dir, mark) = with_command(&mut model);
    let instance = started(model).await;
    soon(instance.sleep().unwrap()).await.unwrap();
    soon(instance.wake(LoadProgress::default()))
        .await
        .unwrap_err();
    soon(instance.kill()).await;
    assert_stopped(&dir, &mark);
}

#[tokio::test]
async fn a_wake_that_is_given_up() {
    let mut model = server();
    (model.sleep_path, model.wake_path) = (Some("/asks".into()), Some("/slow/600000".into()));
    let (dir, mark) = with_command(&mut model);
    let instance = started(model).await;
    soon(instance.sleep().unwrap()).await.unwrap();
    let wake = instance.wake(LoadProgress::default());
    let given_up = timeout(Duration::from_millis(1), wake).await;
    given_up.expect_err("it is slow");
    soon(instance.kill()).await;
    assert_stopped(&dir, &mark);
}

#[tokio::test]
async fn an_engine_that_is_not_healthy() {
    let mut model = server();
    model.health_interval = Some(Duration::from_millis(50));
    let (dir, mark) = with_command(&mut model);
    let instance = started(model).await;
    get(&*instance, "/fail/1000000").await;
    let reason = soon(instance.ended()).await;
    assert!(reason.contains("health checks"), "{reason}");
    soon(instance.kill()).await;
    assert_stopped(&dir, &mark);
}

#[tokio::test]
async fn an_engine_that_hangs() {
    let mut model = script("sleep 3600");
    model.hang_timeout = Some(Duration::from_millis(50));
    let (dir, mark) = with_command(&mut model);
    let instance = started(model).await;
    instance.on_activity(1);
    soon(instance.ended()).await;
    soon(instance.kill()).await;
    soon(instance.stop()).await;
    assert_stopped(&dir, &mark);
}

#[tokio::test]
async fn what_is_killed_ends_without_its_command() {
    let mut model = script("sleep 3600");
    let (dir, mark) = with_command(&mut model);
    let instance = started(model).await;
    soon(instance.kill()).await;
    assert!(mark.pids().is_empty());
    assert!(!std::fs::exists(dir.path("stopped")).unwrap());
}

#[tokio::test]
async fn what_sleeps_and_is_given_up_before_it_wakes() {
    let mut a = server();
    (a.sleep_path, a.wake_path) = (Some("/asks".into()), Some("/asks".into()));
    let (dir, mark) = with_command(&mut a);
    // It takes its time to stop.
    let mut b = script("trap \"sleep 1; exit\" TERM; sleep 3600 & wait");
    b.model.name = "b".into();
    let b_mark = Mark::on(&mut b);
    let mut config = SwapConfig::memory(1.0)
        .model(a.memory(1.0))
        .model(b.memory(1.0));
    (config.swap_after, config.min_loaded) = (Duration::ZERO, Duration::ZERO);
    let layer = SwapLayer::builder(config).try_build().unwrap();
    let handle = layer.handle();
    let state = |nth: usize| handle.models()[nth].state;
    handle.load("m").unwrap();
    until(|| state(0) == ModelState::Loaded).await;
    handle.load("b").unwrap();
    until(|| state(1) == ModelState::Loaded).await;
    b_mark.until_count(2).await; // it traps the signal
    assert_eq!(state(0), ModelState::Sleeping);
    handle.load("m").unwrap();
    until(|| state(1) == ModelState::Unloading).await;
    handle.unload("m", Unload::Drain).unwrap();
    until(|| state(0) == ModelState::Unloaded).await;
    assert_stopped(&dir, &mark);
    soon(handle.shutdown()).await;
}

/// A model that takes a name, as a container, which is free once its command has run. Until then no other one starts.
fn named(dir: &TestDir) -> SwapModel {
    let (mut model, name) = (server(), dir.path("name"));
    let program = std::mem::take(&mut model.cmd);
    model.cmd = format!("/bin/sh -c 'mkdir {name} && exec \"$@\"' sh {program}");
    model.stop_cmd = Some(format!(
        "/bin/sh -c 'sleep 0.2; rmdir {name}; kill ${{PID}}'"
    ));
    model.health_interval = Some(Duration::from_millis(50));
    model
}

#[tokio::test]
async fn the_start_after_one_that_was_given_up_finds_its_name_free() {
    let dir = TestDir::new();
    let mut model = named(&dir);
    let go = dir.path("go");
    let waits = format!("&& until [ -e {go} ]; do sleep 0.02; done && exec");
    model.cmd = model.cmd.replace("&& exec", &waits);
    let (service, handle) = layer(model);
    for how in [Unload::Drain, Unload::Kill] {
        handle.load("m").unwrap();
        until(|| std::fs::exists(dir.path("name")).unwrap()).await;
        assert_eq!(handle.models()[0].state, ModelState::Loading);
        handle.unload("m", how).unwrap();
        until(|| handle.models()[0].state == ModelState::Unloaded).await;
    }
    std::fs::write(go, "").unwrap();
    let (status, body) = ask(&service, "/asks").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    soon(handle.shutdown()).await;
}

#[tokio::test]
async fn the_start_after_an_engine_that_was_not_healthy_finds_its_name_free() {
    let dir = TestDir::new();
    let (service, handle) = layer(named(&dir));
    assert_eq!(ask(&service, "/deaf").await.0, StatusCode::OK);
    until(|| handle.models()[0].last_error.is_some()).await;
    let (status, body) = ask(&service, "/asks").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    soon(handle.shutdown()).await;
}

#[tokio::test]
async fn the_start_after_a_wake_that_failed_finds_its_name_free() {
    let dir = TestDir::new();
    let mut model = named(&dir);
    (model.sleep_path, model.wake_path) = (Some("/asks".into()), Some("/no".into()));
    model.ttl = Some(Duration::from_millis(100));
    let (service, handle) = layer(model);
    assert_eq!(ask(&service, "/asks").await.0, StatusCode::OK);
    until(|| handle.models()[0].state == ModelState::Sleeping).await;
    let (status, body) = ask(&service, "/asks").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    soon(handle.shutdown()).await;
}
