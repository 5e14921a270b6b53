//! A process with a process group of its own.
//!
//! The number of a group is that of its leader, the process that was started. The system gives it to another process once
//! the leader was reaped and no process of the group is left; a signal would then reach a stranger. So the group is
//! signalled only before its leader is reaped:
//!
//! - A lock covers both signals and reaping. Signals come to nothing once the leader was reaped.
//! - Waiting leaves the leader as it is (`WNOWAIT`). An ended leader that was not reaped keeps its number.
//! - Reaping kills what is left of the group first. Linux signals all processes of a group at once, and a process with a
//!   pending signal cannot fork, so none escapes.
//!
//! Tokio reaps a child when its `wait` or `try_wait` says that it has ended, which only [`Group::reap`] asks for, and
//! after it was dropped, which comes after [`Group`]'s own drop has killed the group.

use std::io;
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{ignored_signals, members};

/// The first pause between looks whether a group is gone. It doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The process group of a process that was started. Dropping it kills all of it.
pub(super) struct Group {
    leader: Pid,
    /// The leader, until it is reaped.
    child: Mutex<Option<Child>>,
}

/// Tells that a child of this process has ended, but not which.
pub(super) type ChildEnds = tokio::signal::unix::Signal;

impl Group {
    /// Starts a process with a process group of its own. The other value tells [`ended`](Self::ended) when to look.
    pub(super) fn spawn(command: &mut Command) -> io::Result<(Self, ChildEnds)> {
        // Before the process exists: no end is missed.
        let child_ends = signal(SignalKind::child())?;
        ignored_signals::restore_in_children()?;
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let leader = pid.ok_or_else(|| io::Error::other("the process has no number"))?;
        let child = Mutex::new(Some(child));
        Ok((Self { leader, child }, child_ends))
    }

    /// The number of the leader.
    pub(super) fn pid(&self) -> u32 {
        self.leader.as_raw_nonzero().get() as u32
    }

    /// Sends a signal to all processes of the group.
    pub(super) fn signal(&self, signal: Signal) {
        if self.lock().is_some() {
            self.send(signal);
        }
    }

    /// Ends all processes of the group.
    pub(super) fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Resolves when the leader has ended. It is not reaped yet.
    pub(super) async fn ended(&self, child_ends: &mut ChildEnds) {
        while !self.has_ended() {
            child_ends.recv().await;
        }
    }

    /// Ends what is left of the group, and reaps its leader, which has to have [`ended`](Self::ended).
    pub(super) fn reap(&self) -> io::Result<ExitStatus> {
        let mut child = self.lock();
        let status = match child.take() {
            Some(mut leader) => {
                self.send(Signal::KILL);
                leader.try_wait()?
            }
            None => None,
        };
        status.ok_or_else(|| io::Error::other("it was reaped before"))
    }

    /// Whether its leader was reaped.
    pub(super) fn is_reaped(&self) -> bool {
        self.lock().is_none()
    }

    /// Resolves when no process of the group is left. Its leader has to have been [reaped](Self::reap): the number may be
    /// another group's once this one is gone, so nothing is sent to it.
    pub(super) async fn gone(&self) {
        let (leader, mut pause) = (self.leader, FIRST_PAUSE);
        // An error: the runtime is shut down.
        while let Ok(true) = spawn_blocking(move || members::are_left(leader)).await {
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    fn has_ended(&self) -> bool {
        let child = self.lock();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // An error says that there is no such child: another part of the program has reaped it.
        child.is_none() || !matches!(waitid(WaitId::Pid(self.leader), options), Ok(None))
    }

    /// The lock has to be held, and the leader not to have been reaped.
    fn send(&self, signal: Signal) {
        // Fails if all of the group has ended, on some systems.
        _ = kill_process_group(self.leader, signal);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
