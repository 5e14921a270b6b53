//! The trait of databases under the store: a log, and tables of keys.

use bytes::Bytes;

use super::write::Write;
use crate::durable::{Chunk, RequestId, StoreError};

/// A place for bytes.
pub(crate) trait Storage: Send + Sync + 'static {
    /// Writes all down, or nothing.
    fn commit(&self, writes: &[Write]) -> Result<(), StoreError>;

    /// Writes down what has to be written down, after [`commit`](Self::commit) has failed: it may use what is kept back.
    fn commit_again(&self, writes: &[Write]) -> Result<(), StoreError> {
        self.commit(writes)
    }

    /// Returns an error while nothing new may be written down.
    fn has_space(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Checks that a value can be kept under a key.
    fn check_key(&self, _key: &str) -> Result<(), StoreError> {
        Ok(())
    }

    /// Gives all back to the system. No other operation follows.
    fn close(&self) {}

    /// Returns a request's body.
    fn body(&self, segment: u32, id: RequestId) -> Result<Option<Bytes>, StoreError>;

    /// Returns a request's response.
    fn response(&self, segment: u32, id: RequestId) -> Result<Option<Bytes>, StoreError>;

    /// Returns the pieces of a response from number `first` to number `last`.
    fn chunks(
        &self,
        segment: u32,
        id: RequestId,
        first: u64,
        last: u64,
    ) -> Result<Vec<Chunk>, StoreError>;

    /// Returns the value of a key.
    fn value(&self, key: &str) -> Result<Option<Bytes>, StoreError>;

    /// Returns the keys that begin with `prefix` and come after `after`, `max` at most, with their values.
    fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<(String, Bytes)>, StoreError>;
}
