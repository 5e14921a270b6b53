//! A reader for all values of a store with the same key prefix, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use tower_triage_durable::{Store, StoreError};

/// A scan over the values of a prefix in the order of their keys. The store bounds the bytes that it reads at a time.
pub(super) struct Scan {
    store: Arc<dyn Store>,
    prefix: String,
    max_at_once: usize,
    after: Option<String>,
    read: VecDeque<(String, Bytes)>,
}

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
            let found = self.store.values(&self.prefix, after, self.max_at_once);
            self.read = found.await?.into();
            if let Some((last, _)) = self.read.back() {
                self.after = Some(last.clone());
            }
        }
        let next = self.read.pop_front();
        Ok(next.map(|(key, value)| (key[self.prefix.len()..].to_owned(), value)))
    }
}
