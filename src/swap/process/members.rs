//! The processes of a group after its leader was reaped.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

/// Whether a process of this group has memory. One that has ended and was not reaped has none.
pub(super) fn are_left(group: Pid) -> bool {
    // Nearly always there is none. One that may not be signalled is one, too.
    let is_there = test_kill_process_group(group) != Err(Errno::SRCH);
    // Elsewhere that has to do.
    is_there && (!cfg!(target_os = "linux") || is_any_alive(group))
}

/// Reads `/proc`. Without one there is nothing to wait for.
fn is_any_alive(group: Pid) -> bool {
    let group = group.as_raw_nonzero().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut stats = processes.filter_map(|process| {
        // Of a process that has gone meanwhile, and what is none, there is nothing to be read.
        fs::read_to_string(process.path().join("stat")).ok()
    });
    stats.any(|stat| is_alive_in(&stat, &group))
}

/// Whether a process with this `stat` has not ended, and is of the group.
fn is_alive_in(stat: &str, group: &str) -> bool {
    // The name may have spaces and parentheses; the state, the parent and the group follow.
    let mut rest = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split(' ')
        .skip(1);
    let state = rest.next();
    !matches!(state, Some("Z" | "X") | None) && rest.nth(1) == Some(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_counts_until_it_has_ended() {
        assert!(is_alive_in("9 (sh) S 1 7 7 0 -1", "7"));
        assert!(is_alive_in("9 (a) b) c (d) R 1 7 7 0 -1", "7"));
        assert!(!is_alive_in("9 (sh) Z 1 7 7 0 -1", "7"));
        assert!(!is_alive_in("9 (sh) S 7 8 7 0 -1", "7"));
        assert!(!is_alive_in("", "7"));
    }
}
