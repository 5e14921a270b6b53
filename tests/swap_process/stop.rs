//! Processes that are stopped.

use std::time::Instant;

use tower_triage::swap::StopSignal;

use super::*;

/// A script that ends with status 5 when it is told to by this signal, once it runs.
async fn obedient(signal: &str, change: impl FnOnce(&mut SwapModel)) -> Arc<dyn ModelServer> {
    let mut model = script(&format!("trap \"exit 5\" {signal}; sleep 3600 & wait"));
    change(&mut model);
    run(model, 2).await.0
}

/// Starts a script that consists of so many processes when it has said what it does on signals.
async fn run(mut model: SwapModel, processes: usize) -> (Arc<dyn ModelServer>, Mark) {
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    mark.until_count(processes).await;
    (instance, mark)
}

const BY_ITSELF: &str = "its process ended with exit status: 5";
const KILLED: &str = "its process ended with signal: 9 (SIGKILL)";

#[tokio::test]
async fn it_is_asked_by_its_signal() {
    for (signal, name) in [
        (StopSignal::Term, "TERM"),
        (StopSignal::Int, "INT"),
        (StopSignal::Quit, "QUIT"),
        (StopSignal::Hup, "HUP"),
    ] {
        let instance = obedient(name, |model| {
            model.stop_signal = signal;
            model.stop_grace = HOUR;
        });
        let instance = instance.await;
        soon(instance.stop()).await;
        assert_eq!(soon(instance.ended()).await, BY_ITSELF, "{name}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn its_signal_reaches_it_though_this_process_ignores_it() {
    let mut shell = std::process::Command::new("sh");
    let script = "trap '' HUP INT QUIT; exec \"$0\" --exact stop::it_is_asked_by_its_signal";
    shell.arg("-c").arg(script);
    shell.arg(std::env::current_exe().unwrap());
    let tests = shell.output().unwrap();
    let output = String::from_utf8_lossy(&tests.stdout);
    assert!(tests.status.success(), "{output}");
    assert!(output.contains("1 passed"), "{output}");
}

#[tokio::test]
async fn it_is_killed_when_its_grace_is_over() {
    let mut model = script("trap \"\" TERM; sleep 3600 & sleep 3600");
    model.stop_grace = Duration::from_millis(100);
    let (instance, mark) = run(model, 3).await;
    let began = Instant::now();
    soon(instance.stop()).await;
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(soon(instance.ended()).await, KILLED);
    mark.until_count(0).await;
}

#[tokio::test]
async fn it_may_be_stopped_and_killed_again_and_again() {
    let instance = obedient("TERM", |model| model.stop_grace = HOUR).await;
    soon(async { tokio::join!(instance.stop(), instance.stop()) }).await;
    soon(async { tokio::join!(instance.kill(), instance.stop(), instance.kill()) }).await;
    assert_eq!(soon(instance.ended()).await, BY_ITSELF);
}

#[tokio::test]
async fn killing_it_ends_a_stop_that_waits() {
    let mut model = script("trap \"\" TERM; sleep 3600 & wait");
    model.stop_grace = HOUR;
    let (instance, mark) = run(model, 2).await;
    soon(async { tokio::join!(instance.stop(), instance.kill()) }).await;
    assert_eq!(soon(instance.ended()).await, KILLED);
    mark.until_count(0).await;
}

#[tokio::test]
async fn it_is_signalled_once_however_often_it_is_stopped() {
    // The first signal makes a third process, a second one would end it.
    let mut model = script(
        "again() { exit 9; }; first() { trap again TERM; sleep 3600 & }; trap first TERM; \
         (trap \"\" TERM; exec sleep 3600) & wait; wait; wait",
    );
    model.stop_grace = HOUR;
    let (instance, mark) = run(model, 2).await;
    tokio::select! {
        () = instance.stop() => panic!("it is not asked"),
        _ = mark.until_count(3) => {}
    }
    let again = timeout(Duration::from_millis(200), instance.stop()).await;
    assert!(again.is_err(), "it is asked twice");
    soon(instance.kill()).await;
    assert_eq!(soon(instance.ended()).await, KILLED);
}

#[tokio::test]
async fn its_command_stops_it() {
    let instance = obedient("USR1", |model| {
        model.stop_cmd = Some("/bin/sh -c '[ ${PORT} -gt 0 ] && kill -USR1 ${PID}'".into());
        model.stop_grace = HOUR;
    });
    let instance = instance.await;
    soon(instance.stop()).await;
    assert_eq!(soon(instance.ended()).await, BY_ITSELF);
}

#[tokio::test]
async fn its_signal_stops_it_if_its_command_fails() {
    for cmd in ["/bin/false", "/no/such/program", "'"] {
        let instance = obedient("TERM", |model| {
            model.stop_cmd = Some(cmd.into());
            model.stop_grace = HOUR;
        });
        let instance = instance.await;
        soon(instance.stop()).await;
        assert_eq!(soon(instance.ended()).await, BY_ITSELF, "{cmd}");
    }
}

#[tokio::test]
async fn a_command_that_hangs_ends_with_the_grace() {
    let mut model = script("sleep 3600 & wait");
    model.stop_cmd = Some("/bin/sh -c 'sleep 3600 & wait'".into());
    model.stop_grace = Duration::from_millis(100);
    let (instance, mark) = run(model, 2).await;
    soon(instance.stop()).await;
    assert_eq!(soon(instance.ended()).await, KILLED);
    mark.until_count(0).await;
}

#[tokio::test]
async fn its_memory_is_free_some_time_after_its_end() {
    let settle = Duration::from_millis(100);
    let instance = obedient("TERM", |model| model.settle = settle).await;
    let began = Instant::now();
    soon(instance.stop()).await;
    assert!(began.elapsed() >= settle);
}

#[tokio::test]
async fn its_health_does_not_matter_while_it_stops() {
    let mut model = server();
    let program = std::mem::take(&mut model.cmd);
    model.cmd = format!("/bin/sh -c 'trap \"\" TERM; exec \"$@\"' sh {program}");
    model.health_interval = Some(Duration::from_millis(50));
    model.stop_grace = Duration::from_secs(5);
    let instance = started(model).await;
    let fail = get(&*instance, "/fail/1000000");
    soon(async { tokio::join!(instance.stop(), fail) }).await;
    assert_eq!(soon(instance.ended()).await, KILLED);
}

#[tokio::test]
async fn its_command_is_not_run_once_it_has_ended() {
    let dir = std::env::temp_dir();
    let file = dir.join(format!("tower-triage-stop-{}", std::process::id()));
    let mut model = script("exit 5");
    model.stop_cmd = Some(format!("/bin/touch {}", file.display()));
    let (instance, _) = run(model, 0).await;
    soon(instance.kill()).await;
    soon(instance.stop()).await;
    assert!(!file.exists(), "`${{PID}}` may be another process by now");
}

#[tokio::test]
async fn its_end_is_that_of_all_its_children() {
    // The child writes nowhere, and has memory that takes a while to free.
    let mut model =
        script("(head -c 300000000 /dev/zero; sleep 3600) | tail -n 1 > /dev/null 2>&1");
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    until(|| !mark.pids().is_empty()).await;
    let leader = mark.pids().into_iter().min().unwrap();
    let group = Group::led_by(leader);
    until(|| group.memory() > 300_000_000).await;
    soon(instance.kill()).await;
    assert!(group.pids().is_empty());
}

#[tokio::test]
async fn its_command_is_not_run_once_it_was_reaped() {
    let dir = std::env::temp_dir();
    let file = dir.join(format!("tower-triage-reaped-{}", std::process::id()));
    let mut model = script("setsid sleep 3600 & wait");
    model.stop_cmd = Some(format!("/bin/touch {}", file.display()));
    let (instance, mark) = run(model, 2).await;
    let is_leader = |pid: &u32| children().contains(pid);
    let (leaders, others): (Vec<_>, Vec<_>) = mark.pids().into_iter().partition(is_leader);
    until(|| Group::led_by(leaders[0]).pids().len() == 1).await;
    kill(leaders[0]);
    // Its output has not ended: the other one may write more.
    until(|| !children().contains(&leaders[0])).await;
    soon(instance.stop()).await;
    others.into_iter().for_each(kill);
    assert!(!file.exists(), "`${{PID}}` may be another process by now");
}
