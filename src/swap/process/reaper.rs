//! Reaps orphans: the first process of a container, or of another PID namespace, gets each process whose parent has ended. A
//! process that has ended keeps its number until it is reaped, and there is a limit of numbers.

use std::io;

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

use super::group::leaders;
use super::proc::Stat;

/// Starts the task that reaps orphans, which runs as long as its runtime.
pub(super) fn start() -> io::Result<()> {
    // Before the first look, so that no end is missed.
    let mut child_ends = signal(SignalKind::child())?;
    tokio::spawn(async move {
        // Fails once the runtime is shut down.
        while spawn_blocking(reap).await.is_ok() && child_ends.recv().await.is_some() {}
    });
    Ok(())
}

/// Reaps all children of this process that have ended, except for the leaders of process groups.
fn reap() {
    // No child is started meanwhile, which would not be among the leaders yet.
    let leaders = leaders();
    let this = std::process::id();
    for stat in Stat::all() {
        let pid = stat.process.pid;
        if stat.parent != this || !stat.has_ended || leaders.contains(&pid) {
            continue;
        }
        if let Some(pid) = Pid::from_raw(pid as i32) {
            // Fails if another part of the program has reaped it.
            _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}
