//! What the system says of processes and files.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::sleep;
use tower_triage::swap::SwapModel;

use super::soon;

/// Resolves when the condition holds.
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    soon(holds).await;
}

/// A variable in the environment of a model's processes, by which they are found.
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn on(model: &mut SwapModel) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let value = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        model.env.insert("SWAP_MARK".into(), value.clone());
        Self(format!("SWAP_MARK={value}"))
    }

    /// The processes that run, without those that have ended and are not reaped.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let is_marked = |pid: &u32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ
                .split(|&byte| byte == 0)
                .any(|entry| entry == self.0.as_bytes())
        };
        pids().filter(is_marked).collect()
    }

    /// Resolves with the processes that run when there are that many.
    ///
    /// A process that was started a moment ago, or that becomes another program, has no environment to be found by yet.
    pub(crate) async fn until_count(&self, count: usize) -> Vec<u32> {
        let mut pids = Vec::new();
        let has_count = || {
            pids = self.pids();
            pids.len() == count
        };
        until(has_count).await;
        pids
    }
}

/// A directory of a test's own. It is removed with all that is in it.
pub(crate) struct TestDir(PathBuf);

impl TestDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "tower-triage-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// The path of a file in it.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

/// The children of this process, with those that have ended and are not reaped.
pub(crate) fn children() -> Vec<u32> {
    let this = std::process::id().to_string();
    // The state, and the parent.
    let is_child = |pid: &u32| stat(*pid).get(1) == Some(&this);
    pids().filter(is_child).collect()
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Stops a process as `SIGSTOP` does. Resolves when each of its threads has stopped.
pub(crate) async fn halt(pid: u32) {
    let process = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let has_stopped = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap();
        stat.contains(") T ")
    };
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    until(|| threads().all(|thread| has_stopped(thread.unwrap()))).await;
}

/// How many files this process has open.
pub(crate) fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// A process group.
pub(crate) struct Group(String);

impl Group {
    /// The group of its leader.
    pub(crate) fn led_by(pid: u32) -> Self {
        Self(pid.to_string())
    }

    /// Its processes, with those that have ended and still hold memory, without those that are not reaped.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let is_member = |pid: &u32| {
            let stat = stat(*pid);
            // The state, the parent and the group.
            stat.first().is_some_and(|state| state != "Z") && stat.get(2) == Some(&self.0)
        };
        pids().filter(is_member).collect()
    }

    /// How many bytes of memory it has.
    pub(crate) fn memory(&self) -> usize {
        let pages = |pid: u32| {
            let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
            let resident = statm.split(' ').nth(1);
            resident.map_or(0, |pages| pages.parse().unwrap())
        };
        4_096 * self.pids().into_iter().map(pages).sum::<usize>()
    }
}

/// What the system says of a process after its name, which may have spaces and parentheses.
fn stat(pid: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default();
    rest.split_whitespace().map(str::to_owned).collect()
}
