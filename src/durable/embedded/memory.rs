//! Bytes in memory, for stores that end with their process.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::storage::Storage;
use super::write::Write;
use crate::durable::{Chunk, RequestId, StoreError};

#[derive(Default)]
pub(crate) struct Memory(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    bodies: HashMap<RequestId, Bytes>,
    responses: HashMap<RequestId, Bytes>,
    chunks: HashMap<RequestId, BTreeMap<u64, Bytes>>,
    values: BTreeMap<String, Bytes>,
}

impl Memory {
    fn with<T>(&self, access: impl FnOnce(&mut Tables) -> T) -> Result<T, StoreError> {
        // No change of a table is left half done by a panic.
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(access(&mut tables))
    }
}

impl Storage for Memory {
    fn commit(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.with(|tables| writes.iter().for_each(|write| tables.write(write)))
    }

    fn body(&self, _: u32, id: RequestId) -> Result<Option<Bytes>, StoreError> {
        self.with(|tables| tables.bodies.get(&id).cloned())
    }

    fn response(&self, _: u32, id: RequestId) -> Result<Option<Bytes>, StoreError> {
        self.with(|tables| tables.responses.get(&id).cloned())
    }

    fn chunks(
        &self,
        _: u32,
        id: RequestId,
        first: u64,
        last: u64,
    ) -> Result<Vec<Chunk>, StoreError> {
        self.with(|tables| {
            let chunks = tables.chunks.get(&id).into_iter();
            let chunks = chunks.flat_map(|chunks| chunks.range(first..=last.max(first)));
            let chunk = |(&number, data): (&u64, &Bytes)| Chunk {
                number,
                data: data.clone(),
            };
            chunks.map(chunk).collect()
        })
    }

    fn value(&self, key: &str) -> Result<Option<Bytes>, StoreError> {
        self.with(|tables| tables.values.get(key).cloned())
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
        self.with(|tables| {
            let values = tables.values.range::<str, _>((begin, Bound::Unbounded));
            let values = values.take_while(|(key, _)| key.starts_with(prefix));
            let values = values.take(max);
            values
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        })
    }
}

impl Tables {
    fn write(&mut self, write: &Write) {
        match write {
            Write::Request { id, body, .. } => {
                self.bodies.insert(*id, body.clone());
            }
            Write::Response { id, response, .. } => {
                self.responses.insert(*id, response.clone());
            }
            Write::Chunk {
                id, number, data, ..
            } => {
                let chunks = self.chunks.entry(*id).or_default();
                chunks.insert(*number, data.clone());
            }
            Write::Forget { id } | Write::NoRequest { id, .. } => {
                self.bodies.remove(id);
                self.responses.remove(id);
                self.chunks.remove(id);
            }
            Write::Put { key, value } => {
                self.values.insert(key.clone(), value.clone());
            }
            Write::Remove { key } => {
                self.values.remove(key);
            }
            Write::State { .. } | Write::DropSegment(_) | Write::Pauses(_) => {}
        }
    }
}
