//! The requests in memory by their names.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use slab::Slab;

use super::record::Record;
use crate::durable::RequestId;

/// A table of slots by a hash of the name, which is in the record anyway. Records of the same hash are linked.
#[derive(Default)]
pub(super) struct ById {
    first: HashMap<u32, u32>,
    hasher: RandomState,
}

/// Stands for the end of a chain of records.
pub(super) const NONE: u32 = u32::MAX;

impl ById {
    fn hash(&self, id: RequestId) -> u32 {
        // Its lower half: two of 1,000,000 requests rarely have the same.
        self.hasher.hash_one(id) as u32
    }

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

    /// Adds a record that is not in it.
    pub(super) fn insert(&mut self, requests: &mut Slab<Record>, slot: u32) {
        let record = &mut requests[slot as usize];
        let before = self.first.insert(self.hash(record.id), slot);
        record.next = before.unwrap_or(NONE);
    }

    /// Removes a record that is in it.
    pub(super) fn remove(&mut self, requests: &mut Slab<Record>, slot: u32) {
        let Record { id, next, .. } = requests[slot as usize];
        let hash = self.hash(id);
        match self.first.get_mut(&hash) {
            Some(first) if *first == slot && next == NONE => {
                self.first.remove(&hash);
            }
            Some(first) if *first == slot => *first = next,
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
