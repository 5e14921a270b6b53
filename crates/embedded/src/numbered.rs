//! A database whose commits are numbered, so that the loss of acknowledged ones is noticed.
//!
//! Each commit contains a row with its number. The number is also in a file beside the database, as `ledger.rs` has it.

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::OpenError;
use super::ledger::{self, Acknowledged, Ledger};
use super::storage::{Keys, Op, Order, Storage, Table, Visit};
use tower_triage_durable::StoreError;

/// The key of the row that has the number of the latest commit. The keys of users are UTF-8, which this one isn't.
pub(crate) const COMMIT: &[u8] = b"\xffcommit";

pub(crate) struct Numbered<S> {
    storage: S,
    ledger: Mutex<Ledger>,
    /// The lock of the folder, which is held as long as the store is open.
    lock: Mutex<Option<File>>,
}

impl<S: Storage> Numbered<S> {
    /// Opens the database in the folder of a store. Creates the folder if it is missing. Refuses a database that lacks
    /// acknowledged commits, unless it `is_salvaged`.
    pub(crate) fn open(
        path: &Path,
        is_salvaged: bool,
        open: impl FnOnce(Acknowledged) -> Result<S, OpenError>,
    ) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Folder {
            path: path.to_owned(),
            source,
        };
        create(path).map_err(failed)?;
        let lock = lock(path)?;
        let mut ledger = Ledger::open(path).map_err(failed)?;
        let acknowledged = ledger.acknowledged();
        let storage = open(acknowledged)?;
        let unreadable = |why: StoreError| OpenError::Log {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let row = storage.get(Table::Meta, COMMIT).map_err(unreadable)?;
        let number = row.and_then(|row| Some(u64::from_be_bytes(row[..].try_into().ok()?)));
        let number = number.unwrap_or(0);
        let expected = acknowledged.number;
        let damage = match is_salvaged {
            true => None,
            false if number < expected => Some(format!(
                "it has commit {number} of {expected} that were acknowledged"
            )),
            false => (number > 0 && acknowledged.is_unknown).then(|| ledger::GONE.to_owned()),
        };
        if let Some(why) = damage {
            let path = path.to_owned();
            return Err(OpenError::Damaged { path, why });
        }
        let number = number.max(acknowledged.number);
        let numbered = |ledger: &mut Ledger| match is_salvaged {
            true => ledger.salvage(number),
            false => ledger.acknowledge(number),
        };
        numbered(&mut ledger).map_err(failed)?;
        if acknowledged.is_unknown {
            ledger.create(path).map_err(failed)?;
        }
        let opened = Self {
            storage,
            ledger: Mutex::new(ledger),
            lock: Mutex::new(Some(lock)),
        };
        if is_salvaged {
            // From here on, the database says itself what belongs to it.
            opened.commit(Vec::new()).map_err(unreadable)?;
        }
        Ok(opened)
    }

    /// Makes a commit with the next number.
    fn numbered(
        &self,
        mut ops: Vec<Op>,
        commit: impl FnOnce(Vec<Op>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut ledger = self.ledger();
        let number = ledger.acknowledged().number + 1;
        let row = Bytes::copy_from_slice(&number.to_be_bytes());
        ops.push(Op::Put(Table::Meta, COMMIT.to_vec(), row));
        commit(ops)?;
        // The commit is on the disk, so a failure only makes the file say too little.
        if let Err(why) = ledger.acknowledge(number) {
            tracing::warn!("can't write down that commit {number} was acknowledged: {why}");
        }
        Ok(())
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Storage> Storage for Numbered<S> {
    fn commit(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        self.numbered(ops, |ops| self.storage.commit(ops))
    }

    fn commit_again(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        self.numbered(ops, |ops| self.storage.commit_again(ops))
    }

    fn free_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.storage.free_bytes()
    }

    fn has_space(&self) -> Result<(), StoreError> {
        self.storage.has_space()
    }

    fn close(&self) {
        self.storage.close();
        if let Err(why) = self.ledger().sync() {
            tracing::warn!("can't sync the number of the last commit: {why}");
        }
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn segments(&self) -> Result<Vec<u32>, StoreError> {
        self.storage.segments()
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.storage.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        keys: Keys<'_>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.storage.scan(table, keys, order, visit)
    }
}

/// Creates the folder of a store, or takes an empty one. Only its owner may read it, because stored requests have the headers
/// of clients, and their keys.
fn create(path: &Path) -> std::io::Result<()> {
    let mut folder = std::fs::DirBuilder::new();
    folder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folder, 0o700);
    folder.create(path)?;
    #[cfg(unix)]
    if std::fs::read_dir(path)?.next().is_none() {
        let owners = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        if let Err(why) = std::fs::set_permissions(path, owners) {
            tracing::warn!("other users may read {}: {why}", path.display());
        }
    }
    Ok(())
}

/// Takes the lock of a folder. Fails if another process holds it.
// `File::try_lock` is newer than the crate's minimum Rust version, but older than the minimum of the database.
#[allow(clippy::incompatible_msrv)]
fn lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join("lock");
    let mut options = File::options();
    let file = options.create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|source| OpenError::Folder {
        path: path.clone(),
        source,
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::Locked {
            path: folder.to_owned(),
        }),
        Err(std::fs::TryLockError::Error(source)) => Err(OpenError::Folder { path, source }),
    }
}
