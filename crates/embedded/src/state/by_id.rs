//! An index of the requests in memory by their id.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use slab::Slab;

use super::record::Record;
use tower_triage_durable::RequestId;

/// A hash table from the hash of a request's id to the slot of its record. The id itself is only in the record, to save
/// memory. Records with the same hash form a linked list through [`Record::next`].
#[derive(Default)]
pub(super) struct ById {
    first: HashMap<u32, u32>,
    hasher: RandomState,
}

/// The slot number that marks the end of a list of records.
pub(super) const NONE: u32 = u32::MAX;

impl ById {
    fn hash(&self, id: RequestId) -> u32 {
        // The lower half of the hash is enough: among 1,000,000 requests only about 120 pairs share it.
        self.hasher.hash_one(id) as u32
    }

    /// Returns the slot of the request with this id, or `None` if the request is not in memory.
    pub(super) fn get(&self, requests: &Slab<Record>, id: RequestId) -> Option<u32> {
        let mut slot = *self.first.get(&self.hash(id))?;
        while let Some(record) = requests.get(slot as usize) {
            if record.id == id {
                return Some(slot);
            }
            slot = record.next;
        }
        None
    }

    /// Adds a record that is not in the index yet. It becomes the first one of its list.
    pub(super) fn insert(&mut self, requests: &mut Slab<Record>, slot: u32) {
        let record = &mut requests[slot as usize];
        let before = self.first.insert(self.hash(record.id), slot);
        record.next = before.unwrap_or(NONE);
    }

    /// Removes a record that is in the index.
    pub(super) fn remove(&mut self, requests: &mut Slab<Record>, slot: u32) {
        let Record { id, next, .. } = requests[slot as usize];
        let hash = self.hash(id);
        match self.first.get_mut(&hash) {
            Some(first) if *first == slot && next == NONE => {
                self.first.remove(&hash);
            }
            Some(first) if *first == slot => *first = next,
            // The record is further down the list, so its predecessor must skip it.
            Some(first) => {
                let mut before = *first;
                while let Some(record) = requests.get_mut(before as usize) {
                    if record.next == slot {
                        record.next = next;
                        return;
                    }
                    before = record.next;
                }
            }
            None => {}
        }
    }
}
