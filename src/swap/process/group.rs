//! A process with a process group of its own.
//!
//! A group has the number of its leader, which is the process that was started. The system gives the number to another
//! process once the leader was reaped and the whole group has ended. A signal would then reach a stranger, so the group gets
//! signals only before its leader is reaped:
//!
//! - A lock covers both signals and reaping, and after the reaping, `signal` does nothing.
//! - Waiting does not reap the leader (`WNOWAIT`). An ended leader keeps its number until it is reaped.
//! - Reaping kills the rest of the group first. Linux signals all processes of a group at once, and a process with a pending
//!   signal cannot fork, so every one of them ends.
//!
//! Tokio reaps a child when its `wait` or `try_wait` returns the exit status, which only [`ProcessGroup::reap`] calls, and
//! after the child was dropped, which comes after [`ProcessGroup`]'s own drop has killed the group.

use std::collections::HashSet;
use std::io;
use std::process::ExitStatus;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::proc::Stat;

/// The first pause between two looks at a group that ends, which doubles with each look.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A process group, with processes that are killed when this is dropped.
pub(super) struct ProcessGroup {
    leader: Pid,
    /// The leader as a child of this process, until it is reaped.
    child: Mutex<Option<Child>>,
}

/// The leaders of all groups until they are reaped. Its lock is held while a child is started, so a process that is not in the
/// set while the lock is held is none that a group started.
static LEADERS: LazyLock<Mutex<HashSet<u32>>> = LazyLock::new(Mutex::default);

/// Locks the set of all leaders.
pub(super) fn leaders() -> MutexGuard<'static, HashSet<u32>> {
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notifies of the end of a child of this process, whichever it is.
pub(super) type ChildEnds = tokio::signal::unix::Signal;

impl ProcessGroup {
    /// Starts a process with a process group of its own. The second value tells [`ended`](Self::ended) when to look.
    pub(super) fn spawn(command: &mut Command) -> io::Result<(Self, ChildEnds)> {
        // Before the process exists, so that its end is seen.
        let child_ends = signal(SignalKind::child())?;
        restore_signals_in_children()?;
        let mut leaders = leaders();
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        leaders.extend(child.id());
        drop(leaders);
        let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let leader = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        let child = Mutex::new(Some(child));
        Ok((Self { leader, child }, child_ends))
    }

    /// Returns the number of the leader, which is the number of the group.
    pub(super) fn pid(&self) -> u32 {
        self.leader.as_raw_nonzero().get() as u32
    }

    /// Sends a signal to all processes of the group.
    pub(super) fn signal(&self, signal: Signal) {
        if self.lock().is_some() {
            self.send(signal);
        }
    }

    /// Sets the soft limit of open files of the leader, and so of its children, which it has yet to start. Has an effect on
    /// Linux only.
    pub(super) fn limit_files(&self, limit: u64) {
        #[cfg(target_os = "linux")]
        if self.lock().is_some() {
            use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

            let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
            let current = Some(maximum.map_or(limit, |maximum| limit.min(maximum)));
            let limits = Rlimit { current, maximum };
            // Fails for a program that runs as another user, which keeps the limit of this one.
            _ = prlimit(Some(self.leader), Resource::Nofile, limits);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = limit;
    }

    /// Ends all processes of the group at once.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Resolves when the leader has ended, and does not reap it.
    pub(super) async fn ended(&self, child_ends: &mut ChildEnds) {
        while !self.has_ended() {
            child_ends.recv().await;
        }
    }

    /// Ends the rest of the group, and reaps its leader, which has to have [`ended`](Self::ended).
    pub(super) fn reap(&self) -> io::Result<ExitStatus> {
        let mut child = self.lock();
        let status = match child.take() {
            Some(mut leader) => {
                self.send(Signal::KILL);
                let status = leader.try_wait();
                leaders().remove(&self.pid());
                status?
            }
            None => None,
        };
        status.ok_or_else(|| io::Error::other("it was reaped before"))
    }

    /// Returns `true` if the leader was reaped, so that signals have no effect.
    pub(super) fn is_reaped(&self) -> bool {
        self.lock().is_none()
    }

    /// Resolves when all processes of the group have ended. The leader has to have been [reaped](Self::reap), so the number
    /// may already be another group's, and this does not send signals.
    pub(super) async fn gone(&self) {
        let (leader, mut pause) = (self.leader, FIRST_PAUSE);
        // Fails only after the runtime was shut down.
        while let Ok(true) = spawn_blocking(move || is_running(leader)).await {
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    fn has_ended(&self) -> bool {
        let child = self.lock();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // Fails only if another part of the program has reaped the child.
        child.is_none() || !matches!(waitid(WaitId::Pid(self.leader), options), Ok(None))
    }

    /// Sends a signal, for a caller that holds the lock and knows that the leader was not reaped.
    fn send(&self, signal: Signal) {
        // On some systems, this fails if the whole group has ended.
        _ = kill_process_group(self.leader, signal);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
        // Tokio reaps it, or whoever reaps orphans.
        leaders().remove(&self.pid());
    }
}

/// Returns `true` if a process of the group still runs. One that has ended but was not reaped holds no memory.
fn is_running(group: Pid) -> bool {
    // Nearly always the group is gone. A process counts even if this program may not signal it.
    if test_kill_process_group(group) == Err(Errno::SRCH) {
        return false;
    }
    // Only on Linux, `/proc` tells which of its processes have ended.
    let number = group.as_raw_nonzero().get() as u32;
    !cfg!(target_os = "linux") || Stat::all().any(|stat| stat.group == number && !stat.has_ended)
}

/// Lets processes that start from now on begin with the default for every signal that stops a process. Has an effect on
/// Linux only.
///
/// Under `nohup` SIGHUP is ignored on entry, and in a shell's background jobs SIGINT and SIGQUIT are. An ignored signal stays
/// ignored in a child, and a POSIX shell cannot trap it, so a stop signal would do nothing. A child does not inherit handlers,
/// but starts with the default. So this installs an empty handler for each ignored signal.
fn restore_signals_in_children() -> io::Result<()> {
    let ignored = ignored();
    let stopping = [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::alarm(),
    ];
    for kind in stopping {
        if ignored >> (kind.as_raw_value() - 1) & 1 == 1 {
            _ = signal(kind)?; // stays installed after the stream of signals is dropped
        }
    }
    Ok(())
}

/// Returns the signals that this process ignores, with bit `n - 1` for signal `n`, or 0 if they are not known.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
