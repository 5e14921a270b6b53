//! The records of live requests, in shards.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use slab::Slab;

use super::Record;

/// The number of shards, as many as threads that may serve requests at the same time on a large machine.
const SHARDS: usize = 32;

/// Records in shards. Each thread inserts into one shard.
pub(super) struct Shards(Box<[Shard]>);

/// Aligned, so that two threads that use different shards do not share a cache line.
#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<Slab<Arc<Record>>>);

/// The place of a record, for its removal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    shard: u32,
    key: u32,
}

thread_local! {
    static SHARD: usize = next_shard();
}

fn next_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS // a counter: no order needed
}

impl Default for Shards {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Shard::default()).collect())
    }
}

impl Shards {
    pub(super) fn insert(&self, record: &Arc<Record>) -> Place {
        let shard = SHARD.with(|shard| *shard);
        let key = self.0[shard].with(|records| records.insert(Arc::clone(record)));
        // There are fewer records than connections, so the numbers fit.
        Place {
            shard: shard as u32,
            key: key as u32,
        }
    }

    pub(super) fn remove(&self, place: Place) {
        let shard = &self.0[place.shard as usize];
        // The record is dropped after the lock is free.
        let _removed = shard.with(|records| records.try_remove(place.key as usize));
    }

    /// Returns all records.
    pub(super) fn all(&self) -> Vec<Arc<Record>> {
        let mut all = Vec::new();
        for shard in &self.0 {
            shard.with(|records| all.extend(records.iter().map(|(_, record)| Arc::clone(record))));
        }
        all
    }
}

impl Shard {
    fn with<R>(&self, look: impl FnOnce(&mut Slab<Arc<Record>>) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
