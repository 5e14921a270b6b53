//! Many starts leave nothing behind.

use std::env;
use std::process::Command;

use futures_util::{StreamExt, stream};

use super::*;

/// In a process of its own, in which no other test starts processes and opens files.
#[test]
fn a_thousand_starts_leave_nothing_behind() {
    let this = env::current_exe().unwrap();
    let mut command = Command::new(this);
    command.args(["--ignored", "--exact", "leaks::a_thousand_starts"]);
    let output = command.env("SWAP_LEAKS", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

const STARTS: usize = 1_000;

#[tokio::test]
#[ignore = "another test runs it as a program"]
async fn a_thousand_starts() {
    if env::var("SWAP_LEAKS").is_err() {
        return;
    }
    one(0).await; // opens what stays open
    until(|| children().is_empty()).await;
    let files = open_files();
    let starts = stream::iter(0..STARTS).map(one).buffer_unordered(8);
    let (marks, ports): (Vec<_>, Vec<_>) = starts.unzip().await;
    until(|| children().is_empty()).await;
    until(|| marks.iter().all(|mark| mark.pids().is_empty())).await;
    until(|| open_files() == files).await;
    // Another program may have one for a time.
    until(|| ports.iter().flatten().all(|&port| is_free(port))).await;
}

/// Starts a process and ends it, each time in another way. The port that it had, if it was ready.
async fn one(number: usize) -> (Mark, Option<u16>) {
    let mut model = script("sleep 3600 & wait");
    match number % 8 {
        0 => model = server(),
        1 => model.cmd = "/bin/sh -c 'exit 1'".into(),
        2 => model.cmd = "/no/such/program".into(),
        3 => model.health_path = Some("/health".into()),
        _ => {}
    }
    let mark = Mark::on(&mut model);
    (mark, run(model, number).await)
}

async fn run(model: SwapModel, number: usize) -> Option<u16> {
    let timeout = if number % 16 == 3 {
        Duration::from_millis(50)
    } else {
        HOUR
    };
    let start = ProcessLauncher::default().start(Launch::new(Arc::new(model), timeout));
    let given_up = tokio::time::sleep(Duration::from_millis(100));
    let instance = tokio::select! {
        result = start => result.ok()?,
        () = given_up, if number % 16 == 11 => return None,
    };
    let port = instance.url().port_u16();
    match number % 3 {
        0 => soon(instance.stop()).await,
        1 => soon(instance.kill()).await,
        _ => drop(instance),
    }
    port
}
