//! Numbers for names that many requests have in common, such as queues and tenants.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use slab::Slab;

/// A table that gives each name a number and a value. A name is dropped together with the last request that uses it.
pub(super) struct Names<N: ?Sized, T> {
    entries: Slab<Entry<N, T>>,
    numbers: HashMap<Arc<N>, u32>,
}

struct Entry<N: ?Sized, T> {
    name: Arc<N>,
    /// The number of requests that use the name.
    users: u64,
    value: T,
}

impl<N: Hash + Eq + ?Sized, T> Names<N, T>
where
    Arc<N>: Borrow<N> + for<'a> From<&'a N>,
{
    pub(super) fn new() -> Self {
        Self {
            entries: Slab::new(),
            numbers: HashMap::new(),
        }
    }

    /// Returns the number of a name, if at least one request uses it.
    pub(super) fn number(&self, name: &N) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns the number of a name, and counts one more request that uses it. Calls `new` for the value of a new name.
    pub(super) fn acquire(&mut self, name: &N, new: impl FnOnce() -> T) -> u32 {
        if let Some(number) = self.number(name) {
            self.entries[number as usize].users += 1;
            return number;
        }
        let name: Arc<N> = Arc::from(name);
        let number = self.entries.insert(Entry {
            name: Arc::clone(&name),
            users: 1,
            value: new(),
        }) as u32;
        self.numbers.insert(name, number);
        number
    }

    /// Counts one request less that uses the name, and drops the name after the last one.
    pub(super) fn release(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.users -= 1;
        if entry.users == 0 {
            let entry = self.entries.remove(number as usize);
            self.numbers.remove(&entry.name);
        }
    }

    pub(super) fn name(&self, number: u32) -> &N {
        &self.entries[number as usize].name
    }

    /// Returns the numbers of all names.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.entries.iter().map(|(number, _)| number as u32)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&N, &T)> {
        let entries = self.entries.iter();
        entries.map(|(_, entry)| (&*entry.name, &entry.value))
    }
}

impl<N: ?Sized, T> Index<u32> for Names<N, T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.entries[number as usize].value
    }
}

impl<N: ?Sized, T> IndexMut<u32> for Names<N, T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.entries[number as usize].value
    }
}
