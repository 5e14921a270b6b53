//! The processes of a group after its leader was reaped.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

use super::proc::Stat;

/// Whether a process of this group has memory. One that has ended and was not reaped has none.
pub(super) fn are_left(group: Pid) -> bool {
    // Nearly always there is none. One that may not be signalled is one, too.
    let is_there = test_kill_process_group(group) != Err(Errno::SRCH);
    // Elsewhere that has to do.
    is_there && (!cfg!(target_os = "linux") || is_any_alive(group))
}

/// Reads `/proc`. Without one there is nothing to wait for.
fn is_any_alive(group: Pid) -> bool {
    let group = group.as_raw_nonzero().get() as u32;
    Stat::all().any(|stat| stat.group == group && !stat.has_ended)
}
