//! Records of the process groups that run, for the next program that starts processes, should this one be killed.
//!
//! A record is an empty file with a name that has everything: the program that starts the group, and the leader of the
//! group. So it can't be half written. It is created before the leader, with the pipe for the leader's output in its name,
//! and then renamed. So every group has a record at any time.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, flock, fstat, open, openat, renameat, unlinkat,
};
use rustix::process::geteuid;

use super::proc::{Owner, Process};

/// The beginning of the name of a leader that does not run yet.
const PIPE: &str = "pipe.";

/// The directory with the records of one user's programs.
#[derive(Debug)]
pub(super) struct Records {
    /// Held open, so that another directory can't take its place.
    dir: OwnedFd,
    owner: Owner,
}

/// The process that leads a recorded group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leader {
    Process(Process),
    /// The process that writes to the pipe of this number, if it was started.
    WriterOf(u64),
}

/// The file of a record in the directory of its [`Records`].
#[derive(Debug)]
pub(super) struct RecordFile {
    records: Arc<Records>,
    name: String,
}

/// The record of a process group of this program, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct GroupRecord(RecordFile);

impl Records {
    /// Opens the first directory that is safe to use, and logs why earlier ones are not.
    pub(super) fn open(owner: &Owner) -> Option<Arc<Self>> {
        directories().into_iter().find_map(|path| {
            let opened = Self::open_at(&path, owner.clone());
            let log = |error: &io::Error| {
                if error.kind() != ErrorKind::NotFound {
                    let path = path.display();
                    tracing::warn!(%path, %error, "records of processes are not kept in this directory");
                }
            };
            opened.inspect_err(log).ok().map(Arc::new)
        })
    }

    /// Opens a directory, and creates it if it is missing. Fails if other users could write records, because those could
    /// end any process.
    pub(super) fn open_at(path: &Path, owner: Owner) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = open(path, flags, Mode::empty())?;
        let stat = fstat(&dir)?;
        if stat.st_uid != geteuid().as_raw() {
            return Err(io::Error::other("it belongs to another user"));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(io::Error::other("other users may write to it"));
        }
        // A lock keeps systemd-tmpfiles from removing old files.
        _ = flock(&dir, FlockOperation::NonBlockingLockShared);
        Ok(Self { dir, owner })
    }

    /// Records a process group that is about to be started, and whose leader writes to this pipe.
    pub(super) fn add(self: &Arc<Self>, output: impl AsFd) -> io::Result<GroupRecord> {
        let leader = Leader::WriterOf(fstat(output)?.st_ino);
        let name = self.name(leader);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        openat(&self.dir, &*name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(GroupRecord(self.file(name)))
    }

    /// Returns the leader of each group whose program `is_gone`, with the file of its record. Removes the records of earlier
    /// boots.
    pub(super) fn orphaned(
        self: &Arc<Self>,
        is_gone: impl Fn(&Owner) -> bool,
    ) -> Vec<(Leader, RecordFile)> {
        let entries = Dir::read_from(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned()));
        let names: Vec<String> = names.collect(); // before any of them is removed
        let mut orphaned = Vec::new();
        for name in names {
            // A file with another name is no record.
            let Some((owner, leader)) = parse(&name) else {
                continue;
            };
            let file = self.file(name);
            if self.owner.is_after_boot_of(&owner) {
                file.remove();
            } else if is_gone(&owner) {
                orphaned.push((leader, file));
            }
        }
        orphaned
    }

    fn name(&self, leader: Leader) -> String {
        let owner = &self.owner;
        match leader {
            Leader::Process(process) => format!("{owner}_{process}"),
            Leader::WriterOf(pipe) => format!("{owner}_{PIPE}{pipe}"),
        }
    }

    fn file(self: &Arc<Self>, name: String) -> RecordFile {
        let records = Arc::clone(self);
        RecordFile { records, name }
    }
}

impl RecordFile {
    /// Removes the record, because its group has ended.
    pub(super) fn remove(&self) {
        // Fails if another program has removed it.
        _ = unlinkat(&self.records.dir, &*self.name, AtFlags::empty());
    }
}

impl GroupRecord {
    /// Records the leader of the group, which runs now.
    pub(super) fn set_leader(&mut self, pid: u32) -> io::Result<()> {
        let RecordFile { records, name } = &mut self.0;
        let leader = Leader::Process(Process::find(pid)?);
        let renamed = records.name(leader);
        renameat(&records.dir, &**name, &records.dir, &*renamed)?;
        *name = renamed;
        Ok(())
    }
}

impl Drop for GroupRecord {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Returns the directories for records, in the order of preference.
fn directories() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute());
    let runtime = runtime.map(|path| path.join("tower-triage"));
    let temporary = std::env::temp_dir().join(format!("tower-triage-{}", geteuid().as_raw()));
    runtime.into_iter().chain([temporary]).collect()
}

/// Parses the program and the leader from the name of a record.
fn parse(name: &str) -> Option<(Owner, Leader)> {
    let (owner, leader) = name.split_once('_')?;
    let leader = match leader.strip_prefix(PIPE) {
        Some(pipe) => Leader::WriterOf(pipe.parse().ok()?),
        None => Leader::Process(leader.parse().ok()?),
    };
    Some((owner.parse().ok()?, leader))
}

#[cfg(all(test, target_os = "linux"))]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::super::proc::tests::dead;
    use super::*;

    /// A directory of a test's own, in which other users may not write.
    pub(in super::super) struct TestDir(PathBuf);

    impl TestDir {
        pub(in super::super) fn new(name: &str) -> Self {
            let name = format!("tower-triage-records-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }

        pub(in super::super) fn records(&self, owner: &Owner) -> Arc<Records> {
            Arc::new(Records::open_at(&self.0, owner.clone()).unwrap())
        }

        pub(in super::super) fn write(&self, name: &str) {
            fs::write(self.0.join(name), "").unwrap();
        }

        pub(in super::super) fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.collect()
        }
    }

    impl Drop for TestDir {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    fn this() -> Owner {
        Owner::this().unwrap()
    }

    #[test]
    fn a_record_is_found_until_it_is_removed() {
        let dir = TestDir::new("found");
        let found = || {
            let found = dir.records(&this()).orphaned(|owner| *owner == dead());
            found.into_iter().map(|(leader, _)| leader)
        };
        let (pipe, _writer) = std::io::pipe().unwrap();
        let mut record = dir.records(&dead()).add(&pipe).unwrap();
        let number = fstat(&pipe).unwrap().st_ino;
        assert!(found().eq([Leader::WriterOf(number)]));
        let leader = std::process::id();
        record.set_leader(leader).unwrap();
        assert!(found().eq([Leader::Process(Process::find(leader).unwrap())]));
        assert!(dir.records(&this()).orphaned(|_| false).is_empty());
        drop(record);
        assert!(dir.names().is_empty());
    }

    #[test]
    fn records_of_earlier_boots_are_removed_and_other_files_kept() {
        let dir = TestDir::new("boots");
        let record = format!("{}_7.8", dead());
        let earlier = format!("0{record}");
        for name in [&*earlier, "notes", "a_pipe.", "_", &record] {
            dir.write(name);
        }
        assert_eq!(dir.records(&this()).orphaned(|_| true).len(), 1);
        let mut names = dir.names();
        names.sort();
        let mut expected = ["_", "a_pipe.", "notes", &record].map(str::to_owned);
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_directory_that_others_control_is_not_used() {
        let dir = TestDir::new("others");
        let error = |path: &Path| Records::open_at(path, this()).unwrap_err().to_string();
        let link = dir.0.join("link");
        fs::create_dir(dir.0.join("target")).unwrap();
        symlink(dir.0.join("target"), &link).unwrap();
        assert!(error(&link).contains("Not a directory"), "{}", error(&link));
        let open = dir.0.join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(error(&open), "other users may write to it");
        let file = dir.0.join("file");
        fs::write(&file, "").unwrap();
        assert!(error(&file).contains("Not a directory"));
        let foreign = dir.0.join("foreign");
        fs::create_dir(&foreign).unwrap();
        // Only the superuser can give it away.
        if chown(&foreign, Some(12_345), None).is_ok() {
            assert_eq!(error(&foreign), "it belongs to another user");
        }
    }

    #[test]
    fn a_new_directory_is_for_its_user_alone() {
        let dir = TestDir::new("new");
        let path = dir.0.join("new");
        Records::open_at(&path, this()).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }
}
