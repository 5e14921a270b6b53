//! Signals that this process ignores, which the processes that it starts would ignore, too.
//!
//! Under `nohup` SIGHUP is ignored on entry, and in a shell's background jobs SIGINT and SIGQUIT are. An ignored signal stays
//! ignored in a child, and a POSIX shell cannot trap it, so a stop signal would have no effect. A handler is not inherited:
//! a child starts with the default. So a handler that does nothing takes the place of each ignored signal.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Lets the processes that are started from now on begin with the default for every signal that stops a process. Finds out
/// what is ignored on Linux only.
pub(super) fn restore_in_children() -> io::Result<()> {
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

/// Returns the signals that this process ignores: signal `n` is bit `n - 1`. None if that is not known.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
