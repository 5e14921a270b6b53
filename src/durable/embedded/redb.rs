//! Rows in a file of redb. This shows that the database can be replaced, because it passes the same tests. It reserves
//! no space for a full disk.

use std::ops::Bound;
use std::path::Path;

use bytes::Bytes;
use redb::{Database, ReadableDatabase, TableDefinition};

use super::OpenError;
use super::open::Open;
use super::storage::{Keys, Op, Order, Storage, Table, Visit};
use crate::durable::StoreError;

/// The single table of all rows, by the number of the row's table and the row's key.
const ROWS: TableDefinition<'_, (u64, &[u8]), &[u8]> = TableDefinition::new("rows");

pub(crate) struct Redb(Open<Database>);

fn error(error: impl Into<redb::Error>) -> StoreError {
    StoreError::Unavailable(error.into().to_string())
}

impl Redb {
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let made = Database::create(path.join("redb")).map_err(error);
        let made = made.and_then(|mut database| {
            database.check_integrity().map_err(error)?;
            let transaction = database.begin_write().map_err(error)?;
            transaction.open_table(ROWS).map_err(error)?;
            transaction.commit().map_err(error)?;
            Ok(database)
        });
        let database = made.map_err(|why| OpenError::Log {
            path: path.to_owned(),
            why: why.to_string(),
        })?;
        Ok(Self(Open::new(database)))
    }

    fn read<T>(
        &self,
        read: impl FnOnce(redb::ReadOnlyTable<(u64, &[u8]), &[u8]>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.with(|database| {
            let transaction = database.begin_read().map_err(error)?;
            read(transaction.open_table(ROWS).map_err(error)?)
        })
    }
}

impl Storage for Redb {
    fn commit(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        self.0.with(|database| {
            let transaction = database.begin_write().map_err(error)?;
            {
                let mut rows = transaction.open_table(ROWS).map_err(error)?;
                for op in &ops {
                    match op {
                        Op::Put(table, key, row) => {
                            rows.insert((table.number(), &key[..]), &row[..])
                                .map_err(error)?;
                        }
                        Op::Remove(table, key) => {
                            rows.remove((table.number(), &key[..])).map_err(error)?;
                        }
                        Op::DropBytes(segment) => {
                            let number = Table::Bytes(*segment).number();
                            let all = (number, &[][..])..(number + 1, &[][..]);
                            rows.retain_in(all, |_, _| false).map_err(error)?;
                        }
                        Op::DropSegment(segment) => {
                            // The two tables of a segment have adjacent numbers, so one range covers both.
                            let first = Table::Rows(*segment).number();
                            let both = (first, &[][..])..(first + 2, &[][..]);
                            rows.retain_in(both, |_, _| false).map_err(error)?;
                        }
                    }
                }
            }
            // A commit is synced to the disk by default.
            transaction.commit().map_err(error)
        })
    }

    fn close(&self) {
        self.0.close();
    }

    fn segments(&self) -> Result<Vec<u32>, StoreError> {
        self.read(|rows| {
            let mut segments = Vec::new();
            let mut from = Table::Rows(0).number();
            while let Some(row) = rows.range((from, &[][..])..).map_err(error)?.next() {
                let (number, _) = row.map_err(error)?.0.value();
                segments.extend(Table::segment_of(number));
                // The number of the segment's first table is even, so this is the first table of the next segment.
                from = (number & !1) + 2;
            }
            Ok(segments)
        })
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.read(|rows| {
            let row = rows.get((table.number(), key)).map_err(error)?;
            Ok(row.map(|row| Bytes::copy_from_slice(row.value())))
        })
    }

    fn scan(
        &self,
        table: Table,
        (from, to): Keys<'_>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let number = table.number();
        let from = match from {
            Bound::Unbounded => Bound::Included((number, &[][..])),
            bound => bound.map(|key| (number, key)),
        };
        let to = match to {
            Bound::Unbounded => Bound::Excluded((number + 1, &[][..])),
            bound => bound.map(|key| (number, key)),
        };
        self.read(|rows| {
            let mut rows = rows.range::<(u64, &[u8])>((from, to)).map_err(error)?;
            while let Some(row) = match order {
                Order::Ascending => rows.next(),
                Order::Descending => rows.next_back(),
            } {
                let (key, row) = row.map_err(error)?;
                if !visit(key.value().1, row.value())? {
                    break;
                }
            }
            Ok(())
        })
    }
}
