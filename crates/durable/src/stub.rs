//! A store of lists and values in memory, for unit tests.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Mutex;

use bytes::Bytes;

use crate::{
    Backlog, Enqueued, Fetched, KeyValues, Lease, Listing, NewRequest, Operate, Outcome, Page,
    Pause, PauseScope, QueueDepth, QueueTotal, RequestId, RequestInfo, Store, StoreError,
    StoreFuture,
};

/// A store that lists the requests which a test puts into it, and takes no others.
#[derive(Default)]
pub(crate) struct Stub {
    /// The requests, the oldest first.
    pub(crate) requests: Mutex<Vec<RequestInfo>>,
    values: Mutex<BTreeMap<String, Bytes>>,
}

fn done<'a, T: Send + 'a>(value: T) -> StoreFuture<'a, T> {
    Box::pin(ready(Ok(value)))
}

fn unsupported<'a, T: Send + 'a>() -> StoreFuture<'a, T> {
    Box::pin(ready(Err(StoreError::Unsupported("of a stub"))))
}

impl Store for Stub {
    fn enqueue(&self, _: NewRequest) -> StoreFuture<'_, Enqueued> {
        unsupported()
    }

    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let requests = self.requests.lock().unwrap();
        done(requests.iter().find(|info| info.id == id).cloned())
    }

    fn response(&self, _: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        unsupported()
    }

    fn cancel(&self, _: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        unsupported()
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        unsupported()
    }

    fn fetch(&self, _: &str, _: usize) -> StoreFuture<'_, Vec<Fetched>> {
        unsupported()
    }

    fn called(&self, _: &Lease) -> StoreFuture<'_, ()> {
        unsupported()
    }

    fn finish(&self, _: Lease, _: Outcome) -> StoreFuture<'_, bool> {
        unsupported()
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn key_values(&self) -> Option<&dyn KeyValues> {
        Some(self)
    }
}

impl Operate for Stub {
    fn position(&self, _: RequestId) -> StoreFuture<'_, Option<u64>> {
        unsupported()
    }

    fn retry(&self, _: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        unsupported()
    }

    fn list(&self, listing: Listing) -> StoreFuture<'_, Page> {
        let requests = self.requests.lock().unwrap();
        let older = requests.iter().rev().skip_while(|info| {
            let is_after = |after| info.id != after;
            listing.after.is_some_and(is_after)
        });
        let mut older = older.skip(usize::from(listing.after.is_some()));
        let requests = older.by_ref().take(listing.limit).cloned().collect();
        let has_more = older.next().is_some();
        done(Page { requests, has_more })
    }

    fn pause(&self, _: Pause) -> StoreFuture<'_, ()> {
        unsupported()
    }

    fn resume(&self, _: PauseScope) -> StoreFuture<'_, bool> {
        unsupported()
    }

    fn pauses(&self) -> StoreFuture<'_, Vec<Pause>> {
        unsupported()
    }

    fn depths(&self) -> StoreFuture<'_, Vec<QueueDepth>> {
        done(Vec::new())
    }

    fn totals(&self) -> StoreFuture<'_, Vec<QueueTotal>> {
        unsupported()
    }
}

impl KeyValues for Stub {
    fn put(&self, key: &str, value: Bytes) -> StoreFuture<'_, ()> {
        self.values.lock().unwrap().insert(key.to_owned(), value);
        done(())
    }

    fn value(&self, key: &str) -> StoreFuture<'_, Option<Bytes>> {
        done(self.values.lock().unwrap().get(key).cloned())
    }

    fn remove(&self, key: &str) -> StoreFuture<'_, bool> {
        done(self.values.lock().unwrap().remove(key).is_some())
    }

    /// Returns as many values as have 64 KiB together.
    fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> StoreFuture<'_, Vec<(String, Bytes)>> {
        let values = self.values.lock().unwrap();
        let after = after.unwrap_or_default();
        let of_prefix = values
            .range(prefix.to_owned()..)
            .take_while(|(key, _)| key.starts_with(prefix))
            .filter(|(key, _)| key.as_str() > after);
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (key, value) in of_prefix.take(max) {
            found.push((key.clone(), value.clone()));
            bytes += value.len();
            if bytes > 64 << 10 {
                break;
            }
        }
        done(found)
    }
}
