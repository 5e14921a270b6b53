//! Processes whose parent has ended, in the first process of a container.

use std::env;
use std::process::Command;

use super::*;

/// In a process of its own, which gets the orphans of its descendants.
#[test]
fn orphans_of_models_are_reaped() {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "reaped::orphans"]);
    let output = command.env("SWAP_ORPHANS", "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
}

#[tokio::test]
#[ignore = "another test runs it as a program"]
async fn orphans() {
    if env::var("SWAP_ORPHANS").is_err() {
        return;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    stopped(&ProcessLauncher::default()).await;
    assert_eq!(children().len(), 2, "they are not reaped by default");
    let launcher = ProcessLauncher::default().reap_orphans();
    launcher.prepare().await;
    for _ in 0..3 {
        stopped(&launcher).await;
    }
    until(|| children().is_empty()).await;
}

/// Starts a model with two workers, and stops it.
async fn stopped(launcher: &ProcessLauncher) {
    let mut model = script("sleep 3600 & sleep 3600 & wait");
    let mark = Mark::on(&mut model);
    let server = soon(launcher.start(launch(model))).await.unwrap();
    mark.until_count(3).await;
    soon(server.stop()).await;
}
