//! What the system says of processes and files.

use std::fs;
use std::net::TcpListener;
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

    pub(crate) async fn until_count(&self, count: usize) {
        until(|| self.pids().len() == count).await;
    }
}

/// The children of this process, with those that have ended and are not reaped.
pub(crate) fn children() -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name may have spaces and parentheses; the state and the parent follow.
        let parent = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split(' ').nth(2));
        parent == Some(&std::process::id().to_string())
    };
    pids().filter(is_child).collect()
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
