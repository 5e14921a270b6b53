//! The database while it is open.

use std::collections::HashMap;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Contents;
use super::keys;
use crate::durable::embedded::row::{RequestRow, StateRow};
use crate::durable::embedded::state::Recovered;
use crate::durable::embedded::write::Write;
use crate::durable::{Chunk, RequestId, StoreError};

pub(crate) struct Tables {
    // Before the database, so that they are dropped first.
    values: Keyspace,
    meta: Keyspace,
    segments: Mutex<HashMap<u32, Keyspace>>,
    database: Database,
}

/// The largest part of a keyspace that is kept in memory until it is made a table on the disk. Small, so that the
/// [reserve](super::Reserve) has space for one.
const MEMTABLE_BYTES: u64 = 8 * 1024 * 1024;
/// The size of the logs from which on what is in memory is made tables: the more, the longer it takes to open.
const LOG_BYTES: u64 = 128 * 1024 * 1024;
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// The beginning of the names of segments.
const SEGMENT: &str = "requests-";
const PAUSES: &str = "pauses";

impl Tables {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let database = Database::builder(path)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(LOG_BYTES)
            .worker_threads(2)
            .open()
            .map_err(error)?;
        let names = database.list_keyspace_names();
        let mut segments = HashMap::new();
        for name in &names {
            if let Some(segment) = name.strip_prefix(SEGMENT)
                && let Ok(segment) = segment.parse()
            {
                segments.insert(segment, keyspace(&database, name)?);
            }
        }
        Ok(Self {
            values: keyspace(&database, "values")?,
            meta: keyspace(&database, "meta")?,
            segments: Mutex::new(segments),
            database,
        })
    }

    /// Writes all down, or nothing.
    pub(crate) fn commit(&self, writes: &[Write]) -> Result<(), StoreError> {
        let batch = self.database.batch();
        let mut batch = batch.durability(Some(PersistMode::SyncData));
        let mut dropped = Vec::new();
        for write in writes {
            self.add(&mut batch, write, &mut dropped)?;
        }
        batch.commit().map_err(error)?;
        for segment in dropped {
            self.drop_segment(segment);
        }
        Ok(())
    }

    fn add(
        &self,
        batch: &mut OwnedWriteBatch,
        write: &Write,
        dropped: &mut Vec<u32>,
    ) -> Result<(), StoreError> {
        match write {
            Write::Request {
                segment,
                id,
                row,
                body,
            } => {
                let segment = self.segment(*segment)?;
                batch.insert(&segment, keys::request(*id), encode(row)?);
                batch.insert(&segment, keys::body(*id), &body[..]);
            }
            Write::NoRequest { segment, id } => {
                batch.remove(&self.segment(*segment)?, keys::request(*id));
            }
            Write::State { segment, id, row } => {
                let segment = self.segment(*segment)?;
                batch.insert(&segment, keys::state(*id), encode(row)?);
            }
            Write::Response {
                segment,
                id,
                response,
            } => {
                let segment = self.segment(*segment)?;
                batch.insert(&segment, keys::response(*id), &response[..]);
            }
            Write::Chunk {
                segment,
                id,
                number,
                data,
            } => {
                let segment = self.segment(*segment)?;
                batch.insert(&segment, keys::chunk(*id, *number), &data[..]);
            }
            Write::Forget { .. } => {}
            Write::DropSegment(segment) => dropped.push(*segment),
            Write::Pauses(rows) => batch.insert(&self.meta, PAUSES, encode(rows)?),
            Write::Put { key, value } => batch.insert(&self.values, key.as_bytes(), &value[..]),
            Write::Remove { key } => batch.remove(&self.values, key.as_bytes()),
        }
        Ok(())
    }

    /// Returns the keyspace of a segment, which is made if there is none.
    fn segment(&self, segment: u32) -> Result<Keyspace, StoreError> {
        let mut segments = self.lock();
        if let Some(keyspace) = segments.get(&segment) {
            return Ok(keyspace.clone());
        }
        let made = keyspace(&self.database, &format!("{SEGMENT}{segment}"))?;
        segments.insert(segment, made.clone());
        Ok(made)
    }

    fn drop_segment(&self, segment: u32) {
        let Some(keyspace) = self.lock().remove(&segment) else {
            return;
        };
        // It is empty for the state, and dropped when the store is opened next.
        if let Err(why) = self.database.delete_keyspace(keyspace) {
            tracing::warn!("can't drop the requests of segment {segment}: {why}");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Keyspace>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_segment(&self, segment: u32) -> Option<Keyspace> {
        self.lock().get(&segment).cloned()
    }

    pub(crate) fn row(&self, segment: u32, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let Some(segment) = self.known_segment(segment) else {
            return Ok(None);
        };
        let row = segment.get(key).map_err(error)?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    pub(crate) fn chunks(
        &self,
        segment: u32,
        id: RequestId,
        first: u64,
        last: u64,
    ) -> Result<Vec<Chunk>, StoreError> {
        let Some(segment) = self.known_segment(segment) else {
            return Ok(Vec::new());
        };
        let chunks = segment.range(keys::chunk(id, first)..=keys::chunk(id, last));
        let chunks = chunks.map(|chunk| {
            let (key, data) = chunk.into_inner().map_err(error)?;
            let data = Bytes::copy_from_slice(&data);
            let number = keys::number(&key).ok_or_else(|| unreadable("a piece"))?;
            Ok(Chunk { number, data })
        });
        chunks.collect()
    }

    pub(crate) fn value(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        // The database has no empty key, and panics at keys that are too long.
        if !is_key(key) {
            return Ok(None);
        }
        let value = self.values.get(key).map_err(error)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    pub(crate) fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, Bytes)>, StoreError> {
        let begin = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut values = Vec::new();
        for value in self.values.range::<&str, _>((begin, Bound::Unbounded)) {
            if values.len() == max {
                break;
            }
            let (key, value) = value.into_inner().map_err(error)?;
            let key = std::str::from_utf8(&key).map_err(|_| unreadable("a key"))?;
            if !key.starts_with(prefix) {
                break;
            }
            values.push((key.to_owned(), Bytes::copy_from_slice(&value)));
        }
        Ok(values)
    }

    /// Returns all that is there, without bodies and responses.
    pub(crate) fn contents(&self) -> Result<Contents, StoreError> {
        let mut contents = Contents::default();
        if let Some(pauses) = self.meta.get(PAUSES).map_err(error)? {
            contents.pauses = decode(&pauses, "the pauses")?;
        }
        let segments = self.lock().clone();
        for (number, segment) in segments {
            contents.segments.push(number);
            read_segment(number, &segment, &mut contents.requests)?;
        }
        Ok(contents)
    }
}

fn read_segment(
    number: u32,
    segment: &Keyspace,
    requests: &mut Vec<Recovered>,
) -> Result<(), StoreError> {
    let rows = |kind: u8| {
        segment.prefix([kind]).map(|row| {
            let (key, row) = row.into_inner().map_err(error)?;
            Ok((key.to_vec(), row.to_vec()))
        })
    };
    let last_chunk = |id| last_chunk(segment, id);
    recovered(
        number,
        rows(keys::STATE),
        rows(keys::REQUEST),
        last_chunk,
        requests,
    )
}

/// A row with its key.
type Row = Result<(Vec<u8>, Vec<u8>), StoreError>;

/// Reads the requests of a segment. `last_chunk` returns the number of the last piece of a response.
pub(crate) fn recovered(
    segment: u32,
    states: impl Iterator<Item = Row>,
    rows: impl Iterator<Item = Row>,
    last_chunk: impl Fn(RequestId) -> Result<u64, StoreError>,
    requests: &mut Vec<Recovered>,
) -> Result<(), StoreError> {
    let id = |key: &[u8]| keys::id(key).ok_or_else(|| unreadable("the name of a request"));
    let mut by_id: HashMap<RequestId, StateRow> = HashMap::new();
    for state in states {
        let (key, state) = state?;
        by_id.insert(id(&key)?, decode(&state, "the state of a request")?);
    }
    for row in rows {
        let (key, row) = row?;
        let id = id(&key)?;
        let row: RequestRow = decode(&row, "a request")?;
        let state = by_id.remove(&id);
        // The number of pieces is written down at the end of an attempt: of one that was lost, they are counted.
        let ran = |state: &StateRow| state.status().is_some_and(|status| !status.has_ended());
        let chunks = match state.as_ref().is_some_and(ran) {
            true => last_chunk(id)?,
            false => 0,
        };
        requests.push(Recovered {
            segment,
            id,
            row,
            state,
            chunks,
        });
    }
    Ok(())
}

fn last_chunk(segment: &Keyspace, id: RequestId) -> Result<u64, StoreError> {
    let Some(last) = segment.prefix(keys::chunks(id)).next_back() else {
        return Ok(0);
    };
    let key = last.key().map_err(error)?;
    keys::number(&key).ok_or_else(|| unreadable("a piece"))
}

fn keyspace(database: &Database, name: &str) -> Result<Keyspace, StoreError> {
    let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
    database.keyspace(name, options).map_err(error)
}

/// Returns `true` if a value can be kept under this key.
pub(crate) fn is_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= usize::from(u16::MAX)
}

pub(crate) fn encode(row: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(row).map_err(|why| StoreError::Unavailable(why.to_string()))
}

pub(crate) fn decode<T: DeserializeOwned>(row: &[u8], what: &str) -> Result<T, StoreError> {
    serde_json::from_slice(row).map_err(|why| {
        let found = String::from_utf8_lossy(row);
        StoreError::Unavailable(format!("can't read {what}: {why} in {found:?}"))
    })
}

pub(crate) fn unreadable(what: &str) -> StoreError {
    StoreError::Unavailable(format!("can't read {what}: its key is too short"))
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

/// Returns the error of an operation on a file.
pub(crate) fn io_error(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StoreError::StorageFull(error.to_string())
        }
        _ => StoreError::Unavailable(error.to_string()),
    }
}
