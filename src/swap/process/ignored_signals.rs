//! Signals that this process ignores, and that its children would ignore, too.
//!
//! Under `nohup` SIGHUP is ignored on entry, and in a shell's background jobs SIGINT and SIGQUIT are. An ignored signal stays
//! ignored in a child, and a POSIX shell cannot trap it, so a stop signal would do nothing. A child does not inherit
//! handlers, but starts with the default. So this module installs an empty handler for each ignored signal.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Lets processes that start from now on begin with the default for every signal that stops a process. Has an effect on
/// Linux only.
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

/// Returns the signals that this process ignores, with bit `n - 1` for signal `n`, or 0 if they are not known.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
