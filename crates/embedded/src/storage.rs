//! The trait of databases under the store: a log, and tables of rows that are sorted by their keys.

use std::ops::Bound;

use bytes::Bytes;

use tower_triage_durable::StoreError;

/// A table of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Table {
    /// The rows that belong to the store as a whole.
    Meta,
    /// The values that users of the store keep.
    Values,
    /// The rows of the requests of a segment, without bodies and responses.
    Rows(u32),
    /// The bodies and responses of the requests of a segment.
    Bytes(u32),
}

/// A change of a database.
#[derive(Debug)]
pub(crate) enum Op {
    Put(Table, Vec<u8>, Bytes),
    Remove(Table, Vec<u8>),
    /// The removal of both tables of a segment.
    DropSegment(u32),
    /// The removal of the table of bytes of a segment. Later operations may create it again.
    DropBytes(u32),
}

/// The bounds of the keys that a scan visits.
pub(crate) type Keys<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The direction of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

/// A visitor of the rows of a scan. It returns `false` to end the scan.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool, StoreError> + 'a;

/// A database for the rows of a store.
pub(crate) trait Storage: Send + Sync + 'static {
    /// Writes all operations in this order, or leaves the database unchanged.
    fn commit(&self, ops: Vec<Op>) -> Result<(), StoreError>;

    /// Writes operations that must not be lost, after [`commit`](Self::commit) has failed. It may use the reserved
    /// space.
    fn commit_again(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        self.commit(ops)
    }

    /// Returns an error while there is too little space for new data.
    fn has_space(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the bytes that are left for new data, or `None` if they are unknown.
    fn free_bytes(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    /// Closes the database. This is its last operation.
    fn close(&self) {}

    /// Returns the segments that have tables, the oldest first.
    fn segments(&self) -> Result<Vec<u32>, StoreError>;

    /// Returns the row with a key.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError>;

    /// Visits rows in the order of their keys, or in reverse.
    fn scan(
        &self,
        table: Table,
        keys: Keys<'_>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError>;
}

impl Table {
    /// Returns a unique number for each table.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Meta => 0,
            Self::Values => 1,
            Self::Rows(segment) => 2 * u64::from(segment) + 2,
            Self::Bytes(segment) => 2 * u64::from(segment) + 3,
        }
    }

    /// Returns the segment of the table, if the table belongs to one.
    pub(crate) fn segment(self) -> Option<u32> {
        match self {
            Self::Meta | Self::Values => None,
            Self::Rows(segment) | Self::Bytes(segment) => Some(segment),
        }
    }
}
