//! A reader for all values of a store with the same key prefix, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::super::{Store, StoreError};

/// A scan over the values of a prefix in the order of their keys. It reads about 1 MiB at a time.
pub(super) struct Scan {
    store: Arc<dyn Store>,
    prefix: String,
    max_at_once: usize,
    /// The number of values to read next, chosen so that they have about [`AT_ONCE`] bytes.
    at_once: usize,
    after: Option<String>,
    read: VecDeque<(String, Bytes)>,
}

/// The number of bytes that are read at a time. A single value may exceed it.
const AT_ONCE: usize = 1 << 20;

impl Scan {
    pub(super) fn new(
        store: &Arc<dyn Store>,
        prefix: impl Into<String>,
        max_at_once: usize,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            prefix: prefix.into(),
            max_at_once,
            at_once: 1,
            after: None,
            read: VecDeque::new(),
        }
    }

    /// Begins the scan after this key.
    pub(super) fn after(mut self, key: Option<String>) -> Self {
        self.after = key;
        self
    }

    /// Returns the next value, and its key without the prefix. Returns `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<(String, Bytes)>, StoreError> {
        if self.read.is_empty() {
            let after = self.after.as_deref();
            let found = self.store.values(&self.prefix, after, self.at_once).await?;
            if let Some((last, _)) = found.last() {
                self.after = Some(last.clone());
                let bytes: usize = found.iter().map(|(_, value)| value.len()).sum();
                let fitting = found.len() * AT_ONCE / bytes.max(1);
                // The number grows slowly, because the next values may be larger.
                self.at_once = fitting.min(4 * self.at_once).clamp(1, self.max_at_once);
            }
            self.read.extend(found);
        }
        let next = self.read.pop_front();
        Ok(next.map(|(key, value)| (key[self.prefix.len()..].to_owned(), value)))
    }
}
