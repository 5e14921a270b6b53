//! The owner of processes, which is the program that started them.

use std::fmt;
use std::fs;
use std::str::FromStr;

use super::proc::Process;

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

#[cfg(all(test, target_os = "linux"))]
pub(super) mod tests {
    use super::*;

    /// Returns an owner of this machine and namespace that has ended.
    pub(in super::super) fn dead() -> Owner {
        let this = Owner::this().unwrap();
        let process = Process {
            start: 1,
            ..this.process
        };
        Owner { process, ..this }
    }

    #[test]
    fn an_owner_parses_its_own_text() {
        let this = Owner::this().unwrap();
        assert_eq!(this.to_string().parse(), Ok(this));
        for text in ["", "a", "a.b", "a.1.2", "a.1.2.3.4", "7-0-1 m"] {
            assert_eq!(text.parse::<Owner>(), Err(()), "{text:?}");
        }
    }

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
