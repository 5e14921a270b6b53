//! Daemons: processes that have left the process group of their start, and run on after its leader has ended.
//!
//! A variable of the environment, which children inherit, names the start that a process comes from. On Linux, `/proc` has
//! it, unless a process has changed its environment. On other systems, daemons are not found.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed}; // numbers that differ

use tokio::process::Command;

use super::proc::{Owner, pids, variable};

const VARIABLE: &str = "TOWER_TRIAGE_START";
/// The number of starts with daemons at which an instance is not started again: each may hold the memory of a model.
const LIMIT: usize = 2;

/// The starts of one launcher, which mark their processes.
#[derive(Debug)]
pub(super) struct Starts {
    /// This program, if `/proc` tells its identity.
    pub(super) owner: Option<Owner>,
    /// The beginning of the variable, which is unique to the starts of this launcher.
    prefix: String,
    next: AtomicU64,
}

impl Default for Starts {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let owner = Owner::this();
        let name = match &owner {
            Some(owner) => owner.to_string(),
            None => std::process::id().to_string(),
        };
        Self {
            owner,
            prefix: format!("{name}/{number}/"),
            next: AtomicU64::new(0),
        }
    }
}

/// Returns the program that started a process or an ancestor of it, if the environment names it.
pub(super) fn owner(pid: u32) -> Option<Owner> {
    owner_in(&variable(pid, VARIABLE)?)
}

/// Returns the program that started this one or an ancestor of it.
pub(super) fn parent() -> Option<Owner> {
    owner_in(&std::env::var(VARIABLE).ok()?)
}

fn owner_in(value: &str) -> Option<Owner> {
    value.split_once('/')?.0.parse().ok()
}

impl Starts {
    /// Marks the processes of the next start of an instance.
    pub(super) fn mark(&self, command: &mut Command, instance: &str) {
        let start = self.next.fetch_add(1, Relaxed);
        command.env(VARIABLE, format!("{}{start} {instance}", self.prefix));
    }

    /// Returns the reason not to start an instance, if too many of its earlier starts have left daemons.
    pub(super) fn refusal(&self, instance: &str) -> Option<String> {
        let mut left: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pid in pids() {
            let start = variable(pid, VARIABLE).and_then(|value| self.start(&value, instance));
            if let Some(start) = start {
                left.entry(start).or_default().push(pid.to_string());
            }
        }
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

    /// Returns the number of the start, if the value of the variable is of this instance and launcher.
    fn start(&self, value: &str, instance: &str) -> Option<String> {
        let (start, name) = value.strip_prefix(&self.prefix)?.split_once(' ')?;
        (name == instance).then(|| start.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_of_its_instance_and_launcher() {
        let (starts, others) = (Starts::default(), Starts::default());
        let value = format!("{}7 qwen: 2", starts.prefix);
        let start = |starts: &Starts, name| starts.start(&value, name);
        assert_eq!(start(&starts, "qwen: 2").as_deref(), Some("7"));
        assert_eq!(start(&starts, "qwen"), None);
        assert_eq!(start(&others, "qwen: 2"), None);
        assert_eq!(owner_in(&value), starts.owner);
    }
}
