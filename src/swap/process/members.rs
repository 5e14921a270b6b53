//! The processes of a group after its leader was reaped.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process_group};

use super::proc::Stat;

/// Returns `true` if a process of this group still runs. One that has ended but was not reaped holds no memory.
pub(super) fn are_left(group: Pid) -> bool {
    // Nearly always the group is gone. A process counts even if this program may not signal it.
    let is_there = test_kill_process_group(group) != Err(Errno::SRCH);
    // On other systems, that is all there is to know.
    is_there && (!cfg!(target_os = "linux") || is_any_alive(group))
}

/// Returns `true` if `/proc` lists a process of this group that has not ended.
fn is_any_alive(group: Pid) -> bool {
    let group = group.as_raw_nonzero().get() as u32;
    Stat::all().any(|stat| stat.group == group && !stat.has_ended)
}
