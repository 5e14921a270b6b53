//! The database while it is open.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use fjall::compaction::Leveled;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};

use super::journal::SEQNO;
use crate::storage::{Keys, Op, Order, Table, Visit};
use tower_triage_durable::StoreError;

pub(crate) struct Tables {
    // The keyspaces come before the database, so that they are dropped first.
    open: Mutex<BTreeMap<Table, Keyspace>>,
    database: Database,
}

/// The largest part of a keyspace in memory, in bytes, before it is written to a table on the disk. The
/// [reserve](super::Reserve) must have space for one such table, so this is small.
const MEMTABLE_BYTES: u64 = 16 * 1024 * 1024;
/// The number of new tables on the disk from which on they are merged. It is high because commits wait while a merge
/// syncs files, and the segment is soon dropped anyway. It stays below 20, because from there on the database slows
/// writers down.
const MERGED_TABLES: u8 = 12;
/// The size of the logs in bytes from which on memtables are written to the disk. A larger size makes opening slower.
const LOG_BYTES: u64 = 128 * 1024 * 1024;
const CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// The key of the row that lists the tables.
const TABLES: &[u8] = b"\xfftables";

impl Tables {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let database = Database::builder(path)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(LOG_BYTES)
            .worker_threads(2);
        let database = database.open().map_err(error)?;
        let tables = Self {
            open: Mutex::default(),
            database,
        };
        for name in tables.database.list_keyspace_names() {
            if let Some(table) = table(&name) {
                tables.keyspace(table)?;
            }
        }
        Ok(tables)
    }

    /// Writes all operations, or leaves the database unchanged. The data is synced to the disk.
    pub(crate) fn commit(&self, ops: &[Op]) -> Result<(), StoreError> {
        let batch = self.database.batch();
        let mut batch = batch.durability(Some(PersistMode::SyncData));
        for op in ops {
            self.add(&mut batch, op)?;
        }
        let meta = self.keyspace(Table::Meta)?;
        batch.insert(&meta, SEQNO, self.database.seqno().to_be_bytes());
        batch.insert(&meta, TABLES, self.list(ops));
        batch.commit().map_err(error)?;
        for op in ops {
            match op {
                Op::DropSegment(segment) => {
                    self.drop_table(Table::Rows(*segment));
                    self.drop_table(Table::Bytes(*segment));
                }
                Op::DropBytes(segment) => self.drop_table(Table::Bytes(*segment)),
                Op::Put(..) | Op::Remove(..) => {}
            }
        }
        Ok(())
    }

    /// Lets the database write what its tables have in memory. A log stays until that is done for all tables in it, with the
    /// bytes of those that were dropped.
    pub(crate) fn write_to_disk(&self) {
        let open: Vec<Keyspace> = self.lock().values().cloned().collect();
        for keyspace in open {
            if let Err(why) = keyspace.rotate_memtable() {
                tracing::warn!("the log keeps the bytes of forgotten requests for now: {why}");
            }
        }
    }

    /// Returns the numbers of all tables that remain after these operations.
    fn list(&self, ops: &[Op]) -> Vec<u8> {
        let is_dropped = |table: &Table| {
            ops.iter().any(|op| match op {
                Op::DropSegment(segment) => table.segment() == Some(*segment),
                Op::DropBytes(segment) => *table == Table::Bytes(*segment),
                Op::Put(..) | Op::Remove(..) => false,
            })
        };
        let open = self.lock();
        let kept = open.keys().filter(|table| !is_dropped(table));
        kept.flat_map(|table| table.number().to_be_bytes())
            .collect()
    }

    /// Returns `true` if a table is missing that the database had at its last commit.
    pub(crate) fn has_lost_tables(&self) -> Result<bool, StoreError> {
        let listed = self.get(Table::Meta, TABLES)?.unwrap_or_default();
        let open: Vec<u8> = self.list(&[]);
        let mut listed = listed.chunks_exact(8);
        Ok(!listed.all(|table| open.chunks_exact(8).any(|open| open == table)))
    }

    /// Removes the segments that can't be read.
    pub(crate) fn drop_unreadable(&self) {
        let all = (Bound::Unbounded, Bound::Unbounded);
        for segment in self.segments() {
            for table in [Table::Rows(segment), Table::Bytes(segment)] {
                if let Err(why) = self.scan(table, all, Order::Ascending, &mut |_, _| Ok(true)) {
                    tracing::warn!("left {} out of the store: {why}", name(table));
                    self.drop_table(table);
                }
            }
        }
    }

    fn add(&self, batch: &mut OwnedWriteBatch, op: &Op) -> Result<(), StoreError> {
        match op {
            Op::Put(table, key, row) => batch.insert(&self.keyspace(*table)?, &key[..], &row[..]),
            Op::Remove(table, key) => batch.remove(&self.keyspace(*table)?, &key[..]),
            Op::DropSegment(_) | Op::DropBytes(_) => {}
        }
        Ok(())
    }

    /// Returns the keyspace of a table. Creates the keyspace if it is missing.
    fn keyspace(&self, table: Table) -> Result<Keyspace, StoreError> {
        let mut open = self.lock();
        if let Some(keyspace) = open.get(&table) {
            return Ok(keyspace.clone());
        }
        let options = || {
            let merge = Leveled::default().with_l0_threshold(MERGED_TABLES);
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                .compaction_strategy(Arc::new(merge))
        };
        let made = self.database.keyspace(&name(table), options);
        let made = made.map_err(error)?;
        open.insert(table, made.clone());
        Ok(made)
    }

    fn known(&self, table: Table) -> Option<Keyspace> {
        self.lock().get(&table).cloned()
    }

    fn drop_table(&self, table: Table) {
        let Some(keyspace) = self.lock().remove(&table) else {
            return;
        };
        // A failure is harmless, because the state has forgotten the segment and drops it again when the store is next
        // opened.
        if let Err(why) = self.database.delete_keyspace(keyspace) {
            tracing::warn!(
                "can't drop the forgotten requests in {}: {why}",
                name(table)
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Table, Keyspace>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn segments(&self) -> Vec<u32> {
        let open = self.lock();
        let mut segments: Vec<u32> = open.keys().filter_map(|table| table.segment()).collect();
        segments.sort_unstable();
        segments.dedup();
        segments
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let Some(keyspace) = self.known(table) else {
            return Ok(None);
        };
        let row = keyspace.get(key).map_err(error)?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    pub(crate) fn scan(
        &self,
        table: Table,
        keys: Keys<'_>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let Some(keyspace) = self.known(table) else {
            return Ok(());
        };
        let mut rows = keyspace.range::<&[u8], _>(keys);
        while let Some(row) = match order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        } {
            let (key, row) = row.into_inner().map_err(error)?;
            if !visit(&key, &row)? {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the name of the keyspace of a table.
fn name(table: Table) -> String {
    match table {
        Table::Meta => "meta".to_owned(),
        Table::Values => "values".to_owned(),
        Table::Rows(segment) => format!("rows-{segment}"),
        Table::Bytes(segment) => format!("bytes-{segment}"),
    }
}

/// Returns the table with this keyspace name.
fn table(name: &str) -> Option<Table> {
    match name.split_once('-') {
        None if name == "meta" => Some(Table::Meta),
        None if name == "values" => Some(Table::Values),
        Some(("rows", segment)) => segment.parse().ok().map(Table::Rows),
        Some(("bytes", segment)) => segment.parse().ok().map(Table::Bytes),
        _ => None,
    }
}

fn error(error: fjall::Error) -> StoreError {
    match &error {
        fjall::Error::Io(io) => io_error(io),
        fjall::Error::Storage(lsm) => match source_of(lsm) {
            Some(io) => io_error(io),
            None => StoreError::Unavailable(error.to_string()),
        },
        _ => StoreError::Unavailable(error.to_string()),
    }
}

fn source_of(error: &dyn std::error::Error) -> Option<&io::Error> {
    error.source()?.downcast_ref()
}

/// Converts the error of an operation on a file. A lack of space becomes [`StoreError::StorageFull`].
pub(crate) fn io_error(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StoreError::StorageFull(error.to_string())
        }
        _ => StoreError::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AMPLE_BYTES, Disk};
    use super::*;
    use crate::OpenError;
    use crate::ledger::Acknowledged;
    use crate::numbered::Numbered;
    use crate::storage::Storage;

    impl Tables {
        /// Writes a row as earlier versions of the crate do, without the rows that describe the commit.
        fn put_as_before(&self, table: Table) {
            let mut batch = self.database.batch();
            batch.insert(&self.keyspace(table).unwrap(), "key", "row");
            batch.commit().unwrap();
        }

        /// Returns `true` if nothing of a table is in memory alone, or the database writes that right now.
        fn is_written(&self, table: Table) -> bool {
            let keyspace = self.keyspace(table).unwrap();
            keyspace.sealed_memtable_count() + keyspace.table_count() > 0
        }
    }

    /// Returns the length of all files in a folder.
    fn length(folder: &Path) -> u64 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let lengths = entries.map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => length(&entry.path()),
            _ => entry.metadata().map_or(0, |file| file.len()), // it may be gone by now
        });
        lengths.sum()
    }

    #[test]
    fn the_bytes_of_a_dropped_table_leave_the_disk_while_others_stay() {
        let name = format!("tower-triage-dropped-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        let tables = Tables::open(&folder).unwrap();
        let kept = Op::Put(Table::Rows(1), b"key".to_vec(), Bytes::new());
        tables.commit(&[kept]).unwrap();
        let bytes = Bytes::from(vec![b'x'; 8 << 20]);
        for piece in 0..20_u8 {
            let row = Op::Put(Table::Bytes(1), vec![piece], bytes.clone());
            tables.commit(&[row]).unwrap();
        }
        tables.commit(&[Op::DropBytes(1)]).unwrap();
        tables.write_to_disk();
        // A thread of the database removes them. The log that is written to stays.
        let begun = std::time::Instant::now();
        while length(&folder) > 80 << 20 {
            assert!(begun.elapsed().as_secs() < 60, "{} bytes", length(&folder));
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(tables.get(Table::Rows(1), b"key").unwrap().is_some());
        drop(tables);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn tables_are_written_only_where_the_disk_has_ample_space() {
        let name = format!("tower-triage-ample-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        type Available = fn(&Path) -> io::Result<u64>;
        let disks: [(Available, bool); 3] = [
            (|_| Ok(2 * AMPLE_BYTES), true),
            (|_| Ok(AMPLE_BYTES), false),
            (|_| Err(io::ErrorKind::PermissionDenied.into()), false),
        ];
        for (available, is_written) in disks {
            let _ = std::fs::remove_dir_all(&folder);
            let log = folder.join("log");
            std::fs::create_dir_all(&log).unwrap();
            let disk = Disk::open(&folder, Acknowledged::default()).unwrap();
            disk.space().reserve.available = available;
            let kept = Op::Put(Table::Rows(1), b"key".to_vec(), Bytes::new());
            disk.commit(vec![kept]).unwrap();
            disk.commit(vec![Op::DropBytes(1)]).unwrap();
            let is = disk.tables.with(|it| Ok(it.is_written(Table::Rows(1))));
            assert_eq!(is, Ok(is_written), "{:?}", available(&folder));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn tables_that_an_earlier_version_dropped_are_not_lost() {
        let name = format!("tower-triage-rollback-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        let open = || Numbered::open(&folder, false, |known| Disk::open(&folder, known));
        let disk = open().unwrap();
        for segment in [1, 2] {
            let row = Op::Put(Table::Rows(segment), b"key".to_vec(), Bytes::new());
            disk.commit(vec![row]).unwrap();
        }
        drop(disk);

        let tables = Tables::open(&folder.join("log")).unwrap();
        tables.drop_table(Table::Rows(1));
        drop(tables);
        let lost = open().err().unwrap();
        assert!(matches!(lost, OpenError::Damaged { .. }), "{lost}");

        let tables = Tables::open(&folder.join("log")).unwrap();
        tables.put_as_before(Table::Rows(2));
        drop(tables);
        let disk = open().unwrap();
        // From the next commit on, the list is right again.
        disk.commit(Vec::new()).unwrap();
        drop(disk);
        drop(open().unwrap());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
