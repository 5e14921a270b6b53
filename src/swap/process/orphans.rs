//! Orphans: processes of a program that was killed and could not end them.
//!
//! Records name the leaders of their process groups. A variable of the environment finds processes that have left their
//! group, because they inherit it. Both name the program that started them. The processes of a program that still runs are
//! left alone.
//!
//! The system gives the number of a process to another one after its end. So the time of its start identifies a process,
//! too. A group is the same as at the last look if it still has a process of that time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::daemons;
use super::proc::{Owner, Process, Stat, writes_to};
use super::records::{Leader, RecordFile, Records};

/// The time in which processes may end by themselves. Some have to end others first, as `docker run` does.
const GRACE: Duration = Duration::from_secs(5);
/// The time to wait for killed processes, because one that waits for a device may hang for ever.
const KILLED_END: Duration = Duration::from_secs(10);
/// The pause between two looks at the processes that are left.
const PAUSE: Duration = Duration::from_millis(50);

/// Ends the orphans, and returns the time of their end, if there were any.
pub(super) async fn end(this: Owner, records: Option<Arc<Records>>) -> Option<Instant> {
    let began = Instant::now();
    let mut orphans = spawn_blocking(move || Orphans::find(this, records))
        .await
        .ok()?;
    let mut were_found = false;
    loop {
        let is_late = began.elapsed() >= GRACE;
        let left;
        // Fails only after the runtime was shut down.
        (orphans, left) = spawn_blocking(move || {
            let left = orphans.end(is_late);
            (orphans, left)
        })
        .await
        .ok()?;
        if left.is_empty() {
            return were_found.then(Instant::now);
        }
        let pids: Vec<u32> = left.iter().map(|process| process.pid).collect();
        if !were_found {
            tracing::warn!(?pids, "ending processes of a program that was killed");
        }
        were_found = true;
        if began.elapsed() >= GRACE + KILLED_END {
            tracing::error!(
                ?pids,
                "processes of a program that was killed do not end: they may hold memory and ports"
            );
            return Some(Instant::now());
        }
        sleep(PAUSE).await;
    }
}

/// The orphans that were found, and the groups that they are in.
struct Orphans {
    /// This program, which keeps its own processes.
    this: Owner,
    /// The program that started this one or an ancestor of it.
    parent: Option<Owner>,
    groups: Vec<OrphanGroup>,
    /// The processes that were asked to end, because each is asked once.
    asked: HashSet<Process>,
}

/// A process group of orphans that has not ended.
struct OrphanGroup {
    number: u32,
    /// The processes of the group at the last look.
    members: HashSet<Process>,
    record: RecordFile,
}

impl Orphans {
    fn find(this: Owner, records: Option<Arc<Records>>) -> Self {
        let mut all = Self {
            this,
            parent: daemons::parent(),
            groups: Vec::new(),
            asked: HashSet::new(),
        };
        if let Some(records) = records {
            let orphaned = records
                .orphaned(|owner| all.is_orphaned_by(owner))
                .into_iter();
            let groups = orphaned.filter_map(|(leader, record)| OrphanGroup::find(leader, record));
            all.groups = groups.collect();
        }
        all
    }

    /// Returns `true` if processes of this owner are orphans. Those of this program and its siblings are not.
    fn is_orphaned_by(&self, owner: &Owner) -> bool {
        self.parent.as_ref() != Some(owner) && self.this.sees_end_of(owner)
    }

    /// Returns `true` if a process is an orphan by its environment.
    fn is_orphan(&self, process: Process) -> bool {
        daemons::owner(process.pid).is_some_and(|owner| self.is_orphaned_by(&owner))
    }

    /// Asks each orphan once to end, or kills them all if it `is_late`. Returns the orphans that run.
    fn end(&mut self, is_late: bool) -> Vec<Process> {
        let stats: Vec<Stat> = Stat::all().collect();
        let groups = std::mem::take(&mut self.groups).into_iter();
        self.groups = groups.filter_map(|group| group.look(&stats)).collect();
        if is_late {
            self.groups.iter().for_each(OrphanGroup::kill);
        }
        let mut left = Vec::new();
        let running = stats.iter().filter(|stat| !stat.has_ended);
        for process in running.map(|stat| stat.process) {
            let mut groups = self.groups.iter();
            let is_member = groups.any(|group| group.members.contains(&process));
            if !is_member && !self.is_orphan(process) {
                continue;
            }
            left.push(process);
            if is_late && !is_member {
                send(Signal::KILL, process);
            } else if self.asked.insert(process) {
                send(Signal::TERM, process);
            }
        }
        left
    }
}

impl OrphanGroup {
    /// Returns the group of a leader. Returns `None`, and removes the record, if the leader was never started, or has ended.
    fn find(leader: Leader, record: RecordFile) -> Option<Self> {
        let leader = match leader {
            Leader::Process(process) => Some(process),
            Leader::WriterOf(pipe) => Stat::all()
                .filter(|stat| stat.group == stat.process.pid)
                .map(|stat| stat.process)
                .find(|process| writes_to(process.pid, pipe)),
        };
        let Some(leader) = leader else {
            record.remove();
            return None;
        };
        Some(Self {
            number: leader.pid,
            members: HashSet::from([leader]),
            record,
        })
    }

    /// Looks for the processes of the group among all. Returns `None`, and removes the record, once the whole group has
    /// ended: from then on its number may be another group's.
    fn look(mut self, stats: &[Stat]) -> Option<Self> {
        let members: Vec<&Stat> = stats
            .iter()
            .filter(|stat| stat.group == self.number)
            .collect();
        let are_running = members.iter().any(|stat| !stat.has_ended);
        // A process that has ended but is not reaped keeps the number, too.
        let mut processes = members.iter().map(|stat| stat.process);
        let is_same = processes.any(|process| self.members.contains(&process));
        if !(is_same && are_running) {
            self.record.remove();
            return None;
        }
        self.members = members.iter().map(|stat| stat.process).collect();
        Some(self)
    }

    /// Kills all processes at once, so that they can't start others.
    fn kill(&self) {
        // While one of them lives, the number is still of this group.
        let is_there = self.members.iter().any(|process| process.is_alive());
        if let Some(number) = Pid::from_raw(self.number as i32).filter(|_| is_there) {
            _ = kill_process_group(number, Signal::KILL);
        }
    }
}

fn send(signal: Signal, process: Process) {
    let pid = Pid::from_raw(process.pid as i32);
    if let Some(pid) = pid.filter(|_| process.is_alive()) {
        // Fails if the process has ended since the check above.
        _ = kill_process(pid, signal);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::mem::forget;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::super::proc::tests::dead;
    use super::super::records::tests::TestDir;
    use super::*;

    /// A process that leads a group of its own, and is killed when this is dropped.
    struct Sleep(Child);

    impl Sleep {
        fn new() -> Self {
            Self::with_output(Stdio::null())
        }

        fn with_output(output: impl Into<Stdio>) -> Self {
            let mut command = Command::new("sleep");
            command.arg("3600").process_group(0).stdout(output);
            Self(command.spawn().unwrap())
        }

        fn process(&self) -> Process {
            Process::find(self.0.id()).unwrap()
        }
    }

    impl Drop for Sleep {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    fn this() -> Owner {
        Owner::this().unwrap()
    }

    #[tokio::test]
    async fn a_recorded_group_of_a_program_that_has_ended_is_ended() {
        let (dir, leader) = (TestDir::new("ended"), Sleep::new());
        dir.write(&format!("{}_{}", dead(), leader.process()));
        assert!(end(this(), Some(dir.records(&this()))).await.is_some());
        assert!(!leader.process().is_alive());
        assert!(dir.names().is_empty());
    }

    #[tokio::test]
    async fn a_group_is_found_though_its_start_was_not_recorded_to_the_end() {
        let (dir, other) = (TestDir::new("begun"), Sleep::new());
        let (pipe, writer) = std::io::pipe().unwrap();
        forget(dir.records(&dead()).add(&pipe).unwrap());
        let leader = Sleep::with_output(writer);
        assert!(end(this(), Some(dir.records(&this()))).await.is_some());
        assert!(!leader.process().is_alive());
        assert!(other.process().is_alive());
        assert!(dir.names().is_empty());
        // The program was killed before the start.
        forget(dir.records(&dead()).add(&pipe).unwrap());
        end(this(), Some(dir.records(&this()))).await;
        assert!(dir.names().is_empty());
    }

    #[tokio::test]
    async fn a_number_that_another_process_has_now_is_not_touched() {
        let (dir, leader) = (TestDir::new("number"), Sleep::new());
        let now = leader.process();
        let earlier = Process {
            start: now.start - 1,
            ..now
        };
        dir.write(&format!("{}_{earlier}", dead()));
        end(this(), Some(dir.records(&this()))).await;
        assert!(now.is_alive());
        assert!(dir.names().is_empty());
    }

    #[tokio::test]
    async fn groups_of_programs_that_run_or_are_elsewhere_are_kept() {
        let (dir, leader) = (TestDir::new("runs"), Sleep::new());
        let elsewhere = dead().to_string().replacen('.', ".9", 1);
        for owner in [this().to_string(), elsewhere] {
            dir.write(&format!("{owner}_{}", leader.process()));
        }
        end(this(), Some(dir.records(&this()))).await;
        assert!(leader.process().is_alive());
        assert_eq!(dir.names().len(), 2);
    }

    #[test]
    fn a_program_does_not_end_the_start_that_it_is_part_of() {
        let is_orphaned = |parent| {
            let mut all = Orphans::find(this(), None);
            all.parent = parent;
            all.is_orphaned_by(&dead())
        };
        assert!(is_orphaned(None));
        assert!(is_orphaned(Some(this())));
        assert!(!is_orphaned(Some(dead())));
    }

    #[test]
    fn a_group_is_the_same_while_one_of_its_processes_stays() {
        let process = |pid, start| Process { pid, start };
        let stat = |process, has_ended| Stat {
            process,
            parent: 1,
            group: 7,
            has_ended,
        };
        let (leader, child, grandchild) = (process(7, 1), process(8, 2), process(9, 3));
        let looks: [&[_]; 3] = [
            &[stat(leader, true), stat(child, false)],
            &[stat(child, false), stat(grandchild, false)],
            &[stat(grandchild, false)],
        ];
        let dir = TestDir::new("same");
        dir.write(&format!("{}_{leader}", dead()));
        let mut left = dir.records(&this()).orphaned(|_| true);
        let mut group = OrphanGroup {
            number: 7,
            members: HashSet::from([leader]),
            record: left.remove(0).1,
        };
        for stats in looks {
            group = group.look(stats).unwrap();
        }
        // The number is that of a new group.
        let stranger = stat(process(7, 5), false);
        assert!(group.look(&[stranger]).is_none());
        assert!(dir.names().is_empty());
    }
}
