//! The processes of this machine, as Linux lists them in `/proc`, and their owners. On other systems, the list is empty.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::str::FromStr;

use rustix::io::Errno;

/// A process. The time of its start, in clock ticks since the boot, tells it from others that get its number later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) start: u64,
}

impl Process {
    /// Returns the process that has this number now, even if it has ended and is not reaped.
    pub(super) fn find(pid: u32) -> io::Result<Self> {
        Ok(Stat::read(pid)?.process)
    }

    /// Returns `false` if the process has ended. A process that this program may not read counts as alive.
    pub(super) fn is_alive(self) -> bool {
        match Stat::read(self.pid) {
            Ok(stat) => stat.process == self && !stat.has_ended,
            Err(error) => {
                error.kind() != ErrorKind::NotFound
                    && Errno::from_io_error(&error) != Some(Errno::SRCH)
            }
        }
    }
}

/// Writes the form that [`FromStr`] reads.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid, self.start)
    }
}

impl FromStr for Process {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (pid, start) = text.split_once('.').ok_or(())?;
        let (pid, start) = (pid.parse().map_err(drop)?, start.parse().map_err(drop)?);
        Ok(Self { pid, start })
    }
}

/// A program of this machine, with an identity that is unique for all time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    /// The identifier of the boot, because process numbers begin anew with each.
    boot: String,
    /// The number of the PID namespace in which the process number is valid.
    namespace: u64,
    process: Process,
}

impl Owner {
    /// Returns this program, or `None` without `/proc`, as outside of Linux.
    pub(super) fn this() -> Option<Self> {
        let pid = std::process::id();
        // If it is not, `/proc` is of another namespace.
        let is_ours = fs::read_link("/proc/self").ok()?.to_str() == Some(&pid.to_string());
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
        let namespace = namespace.to_str()?.strip_prefix("pid:[")?;
        Some(Self {
            boot: boot.trim().to_owned(),
            namespace: namespace.strip_suffix(']')?.parse().ok()?,
            process: Process::find(pid).ok()?,
        })
        .filter(|_| is_ours)
    }

    /// Returns `true` if another program ran before the last boot.
    pub(super) fn is_after_boot_of(&self, other: &Self) -> bool {
        self.boot != other.boot
    }

    /// Returns `true` if another program has ended. Returns `false` if this one can't know, because the process number is
    /// of another namespace.
    pub(super) fn sees_end_of(&self, other: &Self) -> bool {
        let is_near = (&self.boot, self.namespace) == (&other.boot, other.namespace);
        is_near && !other.process.is_alive()
    }
}

/// Writes the form that [`FromStr`] reads.
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.boot, self.namespace, self.process)
    }
}

impl FromStr for Owner {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (boot, rest) = text.split_once('.').ok_or(())?;
        let (namespace, process) = rest.split_once('.').ok_or(())?;
        Ok(Self {
            boot: boot.to_owned(),
            namespace: namespace.parse().map_err(drop)?,
            process: process.parse()?,
        })
    }
}

/// The state of a process, from its `stat` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) process: Process,
    /// The number of its parent, which is another one once its first parent has ended.
    pub(super) parent: u32,
    /// The number of the process group that it is in.
    pub(super) group: u32,
    /// `true` once it has ended and holds no memory, though it is not reaped.
    pub(super) has_ended: bool,
}

impl Stat {
    /// Returns the states of all processes that still exist.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        // Leaves out a process that has gone meanwhile.
        pids().filter_map(|pid| Self::read(pid).ok())
    }

    fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(pid, &text).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    fn parse(pid: u32, text: &str) -> Option<Self> {
        // The name may have spaces and parentheses. The state, which is the third field, follows it.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            process: Process {
                pid,
                start: field(22)?.parse().ok()?,
            },
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            has_ended: matches!(field(3)?, "Z" | "X"),
        })
    }
}

/// Returns the numbers of all processes that `/proc` lists.
pub(super) fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the value of a variable at the time at which the process began to run its program. Returns `None` for a
/// process of another user, or one that has written over its environment.
pub(super) fn variable(pid: u32, name: &str) -> Option<String> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environ.split(|&byte| byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}

/// Returns `true` if the output of the process goes to the pipe of this number.
pub(super) fn writes_to(pid: u32, pipe: u64) -> bool {
    let pipe = format!("pipe:[{pipe}]");
    [1, 2].into_iter().any(|fd| {
        let file = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
        file.is_ok_and(|file| file.as_os_str() == &*pipe)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Parses the `stat` of a process that started at 900, with this beginning.
    fn parse(begin: &str) -> Option<Stat> {
        let rest = "0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 900 1000 10";
        Stat::parse(9, &format!("{begin} {rest}"))
    }

    #[test]
    fn group_start_and_end_are_read_after_the_name() {
        let process = Process { pid: 9, start: 900 };
        let stat = |parent, group, has_ended| Stat {
            process,
            parent,
            group,
            has_ended,
        };
        assert_eq!(parse("9 (sh) S 1 7 7"), Some(stat(1, 7, false)));
        assert_eq!(parse("9 (a) b) c (d) R 1 7 7"), Some(stat(1, 7, false)));
        assert_eq!(parse("9 (sh) Z 7 8 7"), Some(stat(7, 8, true)));
        assert_eq!(Stat::parse(9, ""), None);
        assert_eq!(Stat::parse(9, "9 (sh) S 1 7 7"), None);
    }

    #[test]
    fn a_process_parses_its_own_text() {
        let process = Process { pid: 9, start: 900 };
        assert_eq!(process.to_string().parse(), Ok(process));
        for text in ["", "9", "9.", "9.900.1", "x.900"] {
            assert_eq!(text.parse::<Process>(), Err(()), "{text:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn another_process_of_the_same_number_is_not_alive() {
        let this = Process::find(std::process::id()).unwrap();
        assert!(this.is_alive());
        let earlier = Process {
            start: this.start - 1,
            ..this
        };
        assert!(!earlier.is_alive());
        let none = Process {
            pid: u32::MAX,
            start: 1,
        };
        assert!(!none.is_alive());
    }
    /// Returns an owner of this machine and namespace that has ended.
    #[cfg(target_os = "linux")]
    pub(in super::super) fn dead() -> Owner {
        let this = Owner::this().unwrap();
        let process = Process {
            start: 1,
            ..this.process
        };
        Owner { process, ..this }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_owner_parses_its_own_text() {
        let this = Owner::this().unwrap();
        assert_eq!(this.to_string().parse(), Ok(this));
        for text in ["", "a", "a.b", "a.1.2", "a.1.2.3.4", "7-0-1 m"] {
            assert_eq!(text.parse::<Owner>(), Err(()), "{text:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_an_end_in_the_same_boot_and_namespace_is_seen() {
        let (this, dead) = (Owner::this().unwrap(), dead());
        assert!(this.sees_end_of(&dead));
        assert!(!this.sees_end_of(&this));
        let mut contained = dead.clone();
        contained.namespace += 1;
        assert!(!this.sees_end_of(&contained));
        let mut earlier = dead;
        earlier.boot.push('x');
        assert!(!this.sees_end_of(&earlier) && this.is_after_boot_of(&earlier));
    }
}
