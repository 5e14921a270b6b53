//! Daemons: processes that have left the process group of their start, and run on after its leader has ended.
//!
//! A variable of the environment, which children inherit, says which start a process comes from. On Linux it is read from
//! `/proc`; elsewhere, and for processes that change their environment, nothing is found.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed}; // numbers that differ

use tokio::process::Command;

const VARIABLE: &str = "TOWER_TRIAGE_START";
/// The number of starts with daemons from which on there is no further one: each may hold the memory of a model.
const LIMIT: usize = 2;

/// The starts of one launcher.
#[derive(Debug)]
pub(super) struct Starts {
    /// The beginning of the variable that all starts of this launcher have, and those of no other.
    prefix: String,
    next: AtomicU64,
}

impl Default for Starts {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let process = std::process::id();
        Self {
            prefix: format!("{VARIABLE}={process}-{number}-"),
            next: AtomicU64::new(0),
        }
    }
}

impl Starts {
    /// Marks the processes of the next start of an instance.
    pub(super) fn mark(&self, command: &mut Command, instance: &str) {
        let start = self.next.fetch_add(1, Relaxed);
        let value = format!("{}{start} {instance}", self.prefix);
        if let Some((name, value)) = value.split_once('=') {
            command.env(name, value);
        }
    }

    /// Returns why an instance that does not run is not to be started, if too many of its earlier starts have left daemons.
    pub(super) fn refusal(&self, instance: &str) -> Option<String> {
        let left = self.left(instance);
        if left.len() < LIMIT {
            return None;
        }
        let pids: Vec<String> = left.into_values().flatten().collect();
        Some(format!(
            "earlier starts of it have left processes outside of their process group that still run, and more would pile \
             up: end them (pids {}), and let `cmd` stay in the foreground",
            pids.join(", ")
        ))
    }

    /// The processes of an instance, by start.
    fn left(&self, instance: &str) -> BTreeMap<String, Vec<String>> {
        let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            // Of what is no process, has ended, or is another user's, there is nothing to be read.
            let environ = fs::read(process.path().join("environ")).unwrap_or_default();
            let start = environ
                .split(|&byte| byte == 0)
                .find_map(|entry| self.start(entry, instance));
            if let Some(start) = start {
                let pid = process.file_name().to_string_lossy().into_owned();
                left.entry(start).or_default().push(pid);
            }
        }
        left
    }

    /// The number of the start of an instance, if the entry of an environment says it.
    fn start(&self, entry: &[u8], instance: &str) -> Option<String> {
        let entry = entry.strip_prefix(self.prefix.as_bytes())?;
        let (start, name) = std::str::from_utf8(entry).ok()?.split_once(' ')?;
        (name == instance).then(|| start.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_of_its_instance_and_launcher() {
        let (starts, others) = (Starts::default(), Starts::default());
        let entry = format!("{}7 qwen: 2", starts.prefix);
        let start = |starts: &Starts, name| starts.start(entry.as_bytes(), name);
        assert_eq!(start(&starts, "qwen: 2").as_deref(), Some("7"));
        assert_eq!(start(&starts, "qwen"), None);
        assert_eq!(start(&others, "qwen: 2"), None);
    }
}
