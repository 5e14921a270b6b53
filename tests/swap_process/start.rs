//! From the command line to a process that is ready, or to an error.

use std::time::Instant;

use tracing_subscriber::filter::LevelFilter;

use super::*;

/// The error of a start.
async fn failed(launch: Launch) -> StartError {
    start(launch).await.expect_err("it should not start")
}

/// A script that would have to listen.
fn silent(text: &str) -> SwapModel {
    let mut model = script(text);
    model.health_path = Some("/health".into());
    model
}

#[tokio::test]
async fn a_slow_start_is_waited_for() {
    let mut model = server();
    model.env.insert("SERVE_DELAY_MS".into(), "300".into());
    let instance = started(model).await;
    assert_eq!(get(&*instance, "/health").await.0, 200);
}

#[tokio::test]
async fn it_is_ready_when_its_health_is_good() {
    let mut model = server();
    model.env.insert("SERVE_FAILS".into(), "3".into());
    let instance = started(model).await;
    assert_eq!(asks(&*instance).await, 4);
}

#[tokio::test]
async fn a_failed_start_tells_its_status_and_its_last_lines() {
    let model = silent("echo loading; echo no memory >&2; exit 3");
    let error = failed(launch(model)).await;
    let reason = "its process ended with exit status: 3, before it was ready";
    assert_eq!(error.reason, reason);
    assert_eq!(error.output, ["loading", "no memory"]);
}

#[tokio::test]
async fn a_start_fails_if_its_health_is_never_good() {
    for (name, value) in [("SERVE_HANGS", "1"), ("SERVE_FAILS", "1000000")] {
        let mut model = server();
        model.env.insert(name.into(), value.into());
        let mark = Mark::on(&mut model);
        let error = failed(Launch::new(Arc::new(model), Duration::from_secs(1))).await;
        assert!(
            error.reason.starts_with("it was not ready within 1 s"),
            "{error}"
        );
        mark.until_count(0).await;
    }
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_an_error() {
    for (cmd, reason) in [
        ("", "the command line is empty"),
        ("a 'b", "the command line cannot be split into words"),
        (
            "/no/such/program --port 1",
            "cannot run `/no/such/program`: No such file",
        ),
    ] {
        let error = failed(launch(SwapModel::new("m", cmd))).await;
        assert!(error.reason.starts_with(reason), "{error}");
    }
}

#[tokio::test]
async fn the_process_learns_its_port_its_variables_and_its_device() {
    let mut model = server();
    model
        .env
        .insert("BASE".into(), "http://127.0.0.1:${PORT}/".into());
    let mut launch = launch(model);
    launch.pool = Some((0, "gpu5".into()));
    let instance = start(launch).await.unwrap();
    assert_eq!(
        get(&*instance, "/env/BASE").await.1,
        instance.url().to_string()
    );
    assert_eq!(get(&*instance, "/env/CUDA_VISIBLE_DEVICES").await.1, "5");
}

#[tokio::test]
async fn without_a_health_path_it_is_ready_as_soon_as_it_runs() {
    let mut model = script("exec sleep 3600");
    let mark = Mark::on(&mut model);
    let _instance = started(model).await;
    mark.until_count(1).await;
}

#[tokio::test]
async fn a_dropped_start_kills_all_that_was_started() {
    let mut model = silent("sleep 3600 & sleep 3600");
    let mark = Mark::on(&mut model);
    let start = start(launch(model));
    tokio::select! {
        result = start => panic!("{result:?}"),
        _ = mark.until_count(3) => {}
    }
    mark.until_count(0).await;
}

#[tokio::test]
async fn the_end_of_a_dropped_start_can_be_waited_for() {
    let mut model = silent("sleep 3600 & sleep 3600");
    model.settle = Duration::from_millis(100);
    let mark = Mark::on(&mut model);
    let launch = launch(model);
    let cleanup = launch.cleanup.clone();
    tokio::select! {
        result = start(launch) => panic!("{result:?}"),
        _ = mark.until_count(3) => {}
    }
    let dropped = Instant::now();
    soon(cleanup.wait()).await;
    assert!(mark.pids().is_empty());
    assert!(dropped.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn a_command_that_leaves_its_work_to_a_child_has_failed() {
    let mut model = silent("sleep 3600 & exit 0");
    let mark = Mark::on(&mut model);
    let error = failed(launch(model)).await;
    assert!(error.reason.contains("exit status: 0"), "{error}");
    mark.until_count(0).await;
}

#[tokio::test]
async fn a_child_outside_the_group_does_not_hold_up_the_end() {
    let mut model = silent(
        // The substitution ends when the child writes elsewhere, outside the group by then.
        "x=$(setsid sh -c \"exec sleep 3600 >&2\" &); echo gone; exit 1",
    );
    let mark = Mark::on(&mut model);
    let error = failed(launch(model)).await;
    assert_eq!(error.output, ["gone"]);
    kill(mark.until_count(1).await[0]);
}

#[tokio::test]
async fn a_process_that_writes_much_is_not_held_up() {
    let error = failed(launch(silent("head -c 10000000 /dev/zero && exit 4"))).await;
    assert!(error.reason.contains("exit status: 4"), "{error}");
}

#[tokio::test]
async fn what_it_writes_is_logged() {
    let log = Log::default();
    let _guards = log.install(LevelFilter::DEBUG);
    failed(launch(silent("echo 7 layers; exit 1"))).await;
    let log = log.take();
    let line = log.lines().find(|line| line.contains("7 layers"));
    let line = line.expect("the line is logged");
    assert!(line.contains("DEBUG"), "{line}");
    assert!(line.contains("tower_triage::swap"), "{line}");
    assert!(line.ends_with("\"m\""), "{line}");
}

#[tokio::test]
async fn a_load_says_how_far_it_has_come() {
    let mut model = server();
    model.progress_path = Some("/progress".into());
    model.env.insert("SERVE_FAILS".into(), "1000000".into());
    let launch = Launch::new(Arc::new(model), Duration::from_secs(60));
    let progress = launch.progress.clone();
    let told = async {
        while progress.get().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        started = start(launch) => panic!("it is not ready: {:?}", started.map(drop)),
        () = soon(told) => {}
    }
    assert_eq!(progress.get(), Some(0.75));
}
