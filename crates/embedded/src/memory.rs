//! Rows in memory, for stores that end with their process.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::storage::{Keys, Op, Order, Storage, Table, Visit};
use tower_triage_durable::StoreError;

type Rows = BTreeMap<Vec<u8>, Bytes>;

#[derive(Default)]
pub(crate) struct Memory(Mutex<BTreeMap<Table, Rows>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Table, Rows>> {
        // A poisoned lock is fine, because a panic can't leave a change of a table half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Memory {
    fn commit(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        let mut tables = self.lock();
        for op in ops {
            match op {
                Op::Put(table, key, row) => {
                    tables.entry(table).or_default().insert(key, row);
                }
                Op::Remove(table, key) => {
                    tables.get_mut(&table).and_then(|rows| rows.remove(&key));
                }
                Op::DropBytes(segment) => {
                    tables.remove(&Table::Bytes(segment));
                }
                Op::DropSegment(segment) => {
                    tables.remove(&Table::Rows(segment));
                    tables.remove(&Table::Bytes(segment));
                }
            }
        }
        Ok(())
    }

    fn segments(&self) -> Result<Vec<u32>, StoreError> {
        // Each segment has a table of rows, and the tables are sorted by segment.
        let rows = |table: &&Table| matches!(table, Table::Rows(_));
        let tables = self.lock();
        let tables = tables.keys().filter(rows);
        Ok(tables.filter_map(|table| table.segment()).collect())
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let tables = self.lock();
        Ok(tables.get(&table).and_then(|rows| rows.get(key)).cloned())
    }

    fn scan(
        &self,
        table: Table,
        keys: Keys<'_>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let tables = self.lock();
        let Some(rows) = tables.get(&table) else {
            return Ok(());
        };
        let mut rows = rows.range::<[u8], (Bound<&[u8]>, Bound<&[u8]>)>(keys);
        while let Some((key, row)) = match order {
            Order::Ascending => rows.next(),
            Order::Descending => rows.next_back(),
        } {
            if !visit(key, row)? {
                break;
            }
        }
        Ok(())
    }
}
