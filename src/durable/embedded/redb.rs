//! Bytes in a file of redb, to show that the database can be replaced: the same tests pass on it. It has no space of its own
//! for a full disk.

use std::fs::File;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::OpenError;
use super::disk::tables::{decode, encode, is_key, recovered, unreadable};
use super::disk::{Contents, keys, lock};
use super::storage::Storage;
use super::write::Write;
use crate::durable::{Chunk, RequestId, StoreError};

/// Rows by segment and key.
const ROWS: TableDefinition<'_, (u32, &[u8]), &[u8]> = TableDefinition::new("rows");
const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const PAUSES: &str = "pauses";

pub(crate) struct Redb {
    database: RwLock<Option<Database>>,
    lock: Mutex<Option<File>>,
}

type Rows<'a> = Table<'a, (u32, &'static [u8]), &'static [u8]>;

fn error(error: impl Into<redb::Error>) -> StoreError {
    StoreError::Unavailable(error.into().to_string())
}

impl Redb {
    pub(crate) fn open(path: &Path) -> Result<(Self, Contents), OpenError> {
        std::fs::create_dir_all(path).map_err(|source| OpenError::Folder {
            path: path.to_owned(),
            source,
        })?;
        let lock = lock(path)?;
        let broken = |why: StoreError| OpenError::Log {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let database = Database::create(path.join("redb"));
        let database = database.map_err(error).map_err(broken)?;
        let contents = contents(&database).map_err(broken)?;
        let disk = Self {
            database: RwLock::new(Some(database)),
            lock: Mutex::new(Some(lock)),
        };
        Ok((disk, contents))
    }

    fn with<T>(
        &self,
        access: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        match &*database {
            Some(database) => access(database),
            None => Err(StoreError::Unavailable("it is closed".to_owned())),
        }
    }

    fn row(&self, segment: u32, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.with(|database| {
            let rows = database.begin_read().map_err(error)?;
            let rows = rows.open_table(ROWS).map_err(error)?;
            let row = rows.get((segment, key)).map_err(error)?;
            Ok(row.map(|row| Bytes::copy_from_slice(row.value())))
        })
    }
}

impl Storage for Redb {
    fn commit(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.with(|database| {
            let transaction = database.begin_write().map_err(error)?;
            {
                let mut rows = transaction.open_table(ROWS).map_err(error)?;
                let mut values = transaction.open_table(VALUES).map_err(error)?;
                let mut meta = transaction.open_table(META).map_err(error)?;
                for write in writes {
                    match write {
                        Write::Pauses(pauses) => {
                            let pauses = encode(pauses)?;
                            meta.insert(PAUSES, &pauses[..]).map_err(error)?;
                        }
                        Write::Put { key, value } => {
                            values.insert(&key[..], &value[..]).map_err(error)?;
                        }
                        Write::Remove { key } => {
                            values.remove(&key[..]).map_err(error)?;
                        }
                        other => add(&mut rows, other)?,
                    }
                }
            }
            // It is synced: that is the default.
            transaction.commit().map_err(error)
        })
    }

    fn close(&self) {
        let mut database = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *database = None;
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn body(&self, segment: u32, id: RequestId) -> Result<Option<Bytes>, StoreError> {
        self.row(segment, &keys::body(id))
    }

    fn response(&self, segment: u32, id: RequestId) -> Result<Option<Bytes>, StoreError> {
        self.row(segment, &keys::response(id))
    }

    fn chunks(
        &self,
        segment: u32,
        id: RequestId,
        first: u64,
        last: u64,
    ) -> Result<Vec<Chunk>, StoreError> {
        self.with(|database| {
            let rows = database.begin_read().map_err(error)?;
            let rows = rows.open_table(ROWS).map_err(error)?;
            let (first, last) = (keys::chunk(id, first), keys::chunk(id, last));
            let chunks = rows.range((segment, &first[..])..=(segment, &last[..]));
            let chunks = chunks.map_err(error)?.map(|chunk| {
                let (key, data) = chunk.map_err(error)?;
                let number = keys::number(key.value().1).ok_or_else(|| unreadable("a piece"))?;
                let data = Bytes::copy_from_slice(data.value());
                Ok(Chunk { number, data })
            });
            chunks.collect()
        })
    }

    fn value(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        if !is_key(key) {
            return Ok(None);
        }
        self.with(|database| {
            let values = database.begin_read().map_err(error)?;
            let values = values.open_table(VALUES).map_err(error)?;
            let value = values.get(key).map_err(error)?;
            Ok(value.map(|value| Bytes::copy_from_slice(value.value())))
        })
    }

    fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, Bytes)>, StoreError> {
        let begin = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.with(|database| {
            let values = database.begin_read().map_err(error)?;
            let values = values.open_table(VALUES).map_err(error)?;
            let all = values.range::<&str>((begin, Bound::Unbounded));
            let mut found = Vec::new();
            for value in all.map_err(error)?.take(max) {
                let (key, value) = value.map_err(error)?;
                if !key.value().starts_with(prefix) {
                    break;
                }
                let value = Bytes::copy_from_slice(value.value());
                found.push((key.value().to_owned(), value));
            }
            Ok(found)
        })
    }
}

fn add(rows: &mut Rows<'_>, write: &Write) -> Result<(), StoreError> {
    let mut insert = |segment: u32, key: &[u8], row: &[u8]| {
        rows.insert((segment, key), row).map(|_| ()).map_err(error)
    };
    match write {
        Write::Request {
            segment,
            id,
            row,
            body,
        } => {
            insert(*segment, &keys::request(*id), &encode(row)?)?;
            insert(*segment, &keys::body(*id), body)
        }
        Write::State { segment, id, row } => insert(*segment, &keys::state(*id), &encode(row)?),
        Write::Response {
            segment,
            id,
            response,
        } => insert(*segment, &keys::response(*id), response),
        Write::Chunk {
            segment,
            id,
            number,
            data,
        } => insert(*segment, &keys::chunk(*id, *number), data),
        Write::NoRequest { segment, id } => {
            let key = keys::request(*id);
            rows.remove((*segment, &key[..])).map(|_| ()).map_err(error)
        }
        Write::DropSegment(segment) => {
            let all = (*segment, &[][..])..(segment.saturating_add(1), &[][..]);
            rows.retain_in(all, |_, _| false).map_err(error)
        }
        Write::Forget { .. } | Write::Pauses(_) | Write::Put { .. } | Write::Remove { .. } => {
            Ok(())
        }
    }
}

/// Makes the tables, and returns what is in them.
fn contents(database: &Database) -> Result<Contents, StoreError> {
    let transaction = database.begin_write().map_err(error)?;
    let mut contents = Contents::default();
    {
        transaction.open_table(VALUES).map_err(error)?;
        let meta = transaction.open_table(META).map_err(error)?;
        if let Some(pauses) = meta.get(PAUSES).map_err(error)? {
            contents.pauses = decode(pauses.value(), "the pauses")?;
        }
        let rows = transaction.open_table(ROWS).map_err(error)?;
        let mut next = Some(0);
        while let Some(from) = next {
            let mut rest = rows.range((from, &[][..])..).map_err(error)?;
            next = match rest.next() {
                None => None,
                Some(row) => {
                    let segment = row.map_err(error)?.0.value().0;
                    contents.segments.push(segment);
                    read_segment(&rows, segment, &mut contents)?;
                    segment.checked_add(1)
                }
            };
        }
    }
    transaction.commit().map_err(error)?;
    Ok(contents)
}

fn read_segment(rows: &Rows<'_>, segment: u32, contents: &mut Contents) -> Result<(), StoreError> {
    let of = |kind: u8| {
        let all = rows.range((segment, &[kind][..])..(segment, &[kind + 1][..]));
        all.map_err(error).map(|all| {
            all.map(|row| {
                let (key, row) = row.map_err(error)?;
                Ok((key.value().1.to_vec(), row.value().to_vec()))
            })
        })
    };
    let last_chunk = |id| {
        let (first, last) = (keys::chunk(id, 0), keys::chunk(id, u64::MAX));
        let chunks = rows.range((segment, &first[..])..=(segment, &last[..]));
        let Some(last) = chunks.map_err(error)?.next_back() else {
            return Ok(0);
        };
        let (key, _) = last.map_err(error)?;
        keys::number(key.value().1).ok_or_else(|| unreadable("a piece"))
    };
    let (states, requests) = (of(keys::STATE)?, of(keys::REQUEST)?);
    recovered(
        segment,
        states,
        requests,
        last_chunk,
        &mut contents.requests,
    )
}
