//! Bytes in a folder, in a log-structured database that serves as a log and as tables of keys.
//!
//! - The folder contains `lock`, which the process of the store holds, and `log/`, the database. It also contains
//!   `acknowledged`, the number of the last commit, and `reserve`, a file that keeps space for outcomes while the disk is
//!   full.
//! - All rows of a request are in the keyspaces of its segment of time, which are dropped as a whole. So scans rarely
//!   pass over removed rows.
//! - `audit.rs` checks the files before the database opens them, because the database drops damaged data silently.
//!   `journal.rs` reads the log of the database, and `salvage.rs` keeps what is whole.
//! - A database that has failed to write accepts no more writes, so it is closed and opened again. `tables.rs` is the
//!   open database.

mod audit;
mod journal;
mod reserve;
mod salvage;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use self::reserve::Reserve;
use self::tables::Tables;
use super::OpenError;
use super::ledger::Acknowledged;
use super::open::Open;
use super::storage::{Keys, Op, Order, Storage, Table, Visit};
use tower_triage_durable::StoreError;

/// The free space from which on there is enough of it to write what all tables have in memory, in bytes.
const AMPLE_BYTES: u64 = 256 * 1024 * 1024;

pub(crate) struct Disk {
    path: PathBuf,
    tables: Open<Tables>,
    space: Mutex<Space>,
    /// The commits that were acknowledged before the store was opened.
    acknowledged: Acknowledged,
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
    /// Opens the database in the folder of a store, unless it has lost acknowledged commits.
    pub(crate) fn open(path: &Path, acknowledged: Acknowledged) -> Result<Self, OpenError> {
        let log = path.join("log");
        let damaged = |why| OpenError::Damaged {
            path: path.to_owned(),
            why,
        };
        let checked = audit::check(&log, acknowledged).map_err(damaged)?;
        let reserve = Reserve::new(path);
        let tables = match Tables::open(&log) {
            Ok(tables) => tables,
            // Opening may need a little space, so the reserve is freed for a second attempt.
            Err(_) => {
                reserve.free();
                Tables::open(&log).map_err(|why| unreadable(&log, &why))?
            }
        };
        let has_lost = tables.has_lost_tables();
        if has_lost.map_err(|why| unreadable(&log, &why))? && !checked.is_older {
            return Err(damaged("a table is gone".to_owned()));
        }
        Ok(Self::with(path, tables, reserve, acknowledged))
    }

    /// Opens what is whole of the database in the folder of a store, and keeps a copy of the damaged files.
    pub(crate) fn salvage(path: &Path) -> Result<Self, OpenError> {
        let log = path.join("log");
        salvage::salvage(&log).map_err(|source| OpenError::Folder {
            path: log.clone(),
            source,
        })?;
        let open = || Tables::open(&log);
        let tables = open().or_else(|_| salvage::open_without_one(&log, open));
        let tables = tables.map_err(|why| unreadable(&log, &why))?;
        tables.drop_unreadable();
        let acknowledged = Acknowledged {
            salvaged: u64::MAX,
            ..Acknowledged::default()
        };
        Ok(Self::with(path, tables, Reserve::new(path), acknowledged))
    }

    fn with(path: &Path, tables: Tables, reserve: Reserve, acknowledged: Acknowledged) -> Self {
        let full = match reserve.fill() {
            Ok(()) => None,
            Err(why) => Some((tables::io_error(&why), Instant::now())),
        };
        Self {
            path: path.to_owned(),
            tables: Open::new(tables),
            space: Mutex::new(Space { reserve, full }),
            acknowledged: Acknowledged {
                is_unknown: false,
                ..acknowledged
            },
        }
    }

    /// Closes the database and opens it again.
    fn open_again(&self) -> Result<(), StoreError> {
        let log = self.path.join("log");
        self.tables.replace(|| {
            audit::check(&log, self.acknowledged).map_err(StoreError::Unavailable)?;
            Tables::open(&log)
        })
    }

    fn space(&self) -> std::sync::MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Disk {
    fn commit(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        let commit = || self.tables.with(|tables| tables.commit(&ops));
        let committed = match commit() {
            // The database may have failed earlier, in its own background work. That does not condemn this write, so it
            // is retried.
            Err(StoreError::Unavailable(_)) => self.open_again().and_then(|()| commit()),
            done => done,
        };
        let Err(why) = committed else {
            let drops = |op: &Op| matches!(op, Op::DropSegment(_) | Op::DropBytes(_));
            let is_ample = || matches!(self.free_bytes(), Ok(Some(free)) if free > AMPLE_BYTES);
            if ops.iter().any(drops) && is_ample() {
                // The commit is done, so a failure here is not its failure.
                let _ = self.tables.with(|tables| {
                    tables.write_to_disk();
                    Ok(())
                });
            }
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

    fn commit_again(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        let commit = || self.tables.with(|tables| tables.commit(&ops));
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

    fn free_bytes(&self) -> Result<Option<u64>, StoreError> {
        let free = self.space().reserve.free_bytes();
        free.map_err(|why| tables::io_error(&why))
    }

    fn close(&self) {
        self.tables.close();
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

/// Returns the error of a database that can't be opened or read.
fn unreadable(log: &Path, why: &StoreError) -> OpenError {
    OpenError::Log {
        path: log.to_owned(),
        why: why.to_string(),
    }
}
