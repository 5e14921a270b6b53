//! Bytes in a folder, in a log-structured database that serves as a log and as tables of keys.
//!
//! - The folder contains `lock`, which the process of the store holds, and `log/`, the database. It also contains
//!   `reserve`, a file that keeps space for outcomes while the disk is full.
//! - All rows of a request are in the keyspaces of its segment of time, which are dropped as a whole. So scans rarely
//!   pass over removed rows.
//! - `torn.rs` repairs the end of a log that was torn by a power loss.
//! - A database that has failed to write accepts no more writes, so it is closed and opened again. `tables.rs` is the
//!   open database.

mod reserve;
mod tables;
mod torn;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::reserve::Reserve;
use self::tables::Tables;
use super::OpenError;
use super::open::Open;
use super::storage::{Keys, Op, Order, Storage, Table, Visit};
use crate::durable::StoreError;

pub(crate) struct Disk {
    path: PathBuf,
    tables: Open<Tables>,
    space: Mutex<Space>,
    /// The lock of the folder, which is held as long as the store is open.
    lock: Mutex<Option<File>>,
}

/// The space that is reserved on the disk.
struct Space {
    reserve: Reserve,
    /// The error for new requests while the disk is full, and the time of the latest check.
    full: Option<(StoreError, Instant)>,
}

/// The time between two checks of a full disk.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Disk {
    /// Opens the store in a folder. Creates the folder if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Folder {
            path: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(path).map_err(failed)?;
        let lock = lock(path)?;
        let reserve = Reserve::new(path);
        let log = path.join("log");
        let broken = |why: StoreError| OpenError::Log {
            path: log.clone(),
            why: why.to_string(),
        };
        let tables = match Tables::open(&log) {
            Ok(tables) => tables,
            // Opening may need a little space, so the reserve is freed for a second attempt.
            Err(_) => {
                reserve.free();
                Tables::open(&log).map_err(broken)?
            }
        };
        let full = match reserve.fill() {
            Ok(()) => None,
            Err(why) => Some((tables::io_error(&why), Instant::now())),
        };
        Ok(Self {
            path: path.to_owned(),
            tables: Open::new(tables),
            space: Mutex::new(Space { reserve, full }),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// Closes the database and opens it again.
    fn open_again(&self) -> Result<(), StoreError> {
        self.tables.replace(|| Tables::open(&self.path.join("log")))
    }

    fn space(&self) -> std::sync::MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Disk {
    fn commit(&self, ops: &[Op]) -> Result<(), StoreError> {
        let commit = || self.tables.with(|tables| tables.commit(ops));
        let committed = match commit() {
            // The database may have failed earlier, in its own background work. That does not condemn this write, so it
            // is retried.
            Err(StoreError::Unavailable(_)) => self.open_again().and_then(|()| commit()),
            done => done,
        };
        let Err(why) = committed else {
            return Ok(());
        };
        let mut space = self.space();
        // The background work may have failed because the disk is full, so the free space decides on the reported
        // error.
        let why = match space.reserve.check() {
            Err(full) => tables::io_error(&full),
            Ok(()) => why,
        };
        space.full = Some((why.clone(), Instant::now()));
        Err(why)
    }

    fn commit_again(&self, ops: &[Op]) -> Result<(), StoreError> {
        let commit = || self.tables.with(|tables| tables.commit(ops));
        if self.open_again().and_then(|()| commit()).is_ok() {
            return Ok(());
        }
        // The last resort is to free the reserve, so that outcomes can use its space.
        self.space().reserve.free();
        self.open_again()?;
        commit()
    }

    fn has_space(&self) -> Result<(), StoreError> {
        let mut space = self.space();
        let Some((why, looked)) = &mut space.full else {
            let why = match space.reserve.check() {
                Ok(()) => return Ok(()),
                Err(why) => tables::io_error(&why),
            };
            tracing::warn!("the store refuses new requests: {why}");
            space.full = Some((why.clone(), Instant::now()));
            return Err(why);
        };
        if looked.elapsed() < LOOK_AGAIN {
            return Err(why.clone());
        }
        *looked = Instant::now();
        let why = why.clone();
        let has_space = space.reserve.check().and_then(|()| space.reserve.fill());
        has_space.map_err(|_| why)?;
        space.full = None;
        tracing::info!("the store takes new requests again");
        Ok(())
    }

    fn close(&self) {
        self.tables.close();
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn segments(&self) -> Result<Vec<u32>, StoreError> {
        self.tables.with(|tables| Ok(tables.segments()))
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.tables.with(|tables| tables.get(table, key))
    }

    fn scan(
        &self,
        table: Table,
        keys: Keys<'_>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.tables
            .with(|tables| tables.scan(table, keys, order, visit))
    }
}

/// Takes the lock of a folder. Fails if another process holds it.
// `File::try_lock` is newer than the crate's minimum Rust version, but older than the minimum of the database.
#[allow(clippy::incompatible_msrv)]
pub(crate) fn lock(folder: &Path) -> Result<File, OpenError> {
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
