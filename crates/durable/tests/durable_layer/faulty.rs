//! A store that can be made to fail, and whose clock can be set.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tower_triage_durable::{
    Backlog, BacklogChange, Chunks, Drain, DueWebhook, Enqueued, Fetched, Found, KeyValues, Lease,
    Listing, NewRequest, Operate, Outcome, Page, Pause, PauseScope, QueueDepth, QueueTotal,
    RequestId, RequestInfo, Stop, Store, StoreError, StoreFuture, Streams, Webhooks,
};

/// A store that is unavailable while the test says so.
pub(crate) struct Faulty {
    inner: Arc<dyn Store>,
    is_down: AtomicBool,
    /// `true` while requests are stored, and the replies are lost.
    loses_replies: AtomicBool,
    /// The number of times that the stored bytes of a tenant were looked up.
    look_ups: AtomicUsize,
    /// The hours by which the system's clock is ahead of the store's.
    hours_ahead: AtomicI64,
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            is_down: AtomicBool::new(false),
            loses_replies: AtomicBool::new(false),
            look_ups: AtomicUsize::new(0),
            hours_ahead: AtomicI64::new(0),
        })
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, SeqCst);
    }

    pub(crate) fn set_loses_replies(&self, loses_replies: bool) {
        self.loses_replies.store(loses_replies, SeqCst);
    }

    pub(crate) fn set_clock(&self, hours_ahead: i64) {
        self.hours_ahead.store(hours_ahead, SeqCst);
    }

    /// Converts a time of the store into one of the system.
    fn shown(&self, time: SystemTime) -> SystemTime {
        let hours = self.hours_ahead.load(SeqCst);
        let by = Duration::from_secs(3600 * hours.unsigned_abs());
        match hours < 0 {
            true => time - by,
            false => time + by,
        }
    }

    pub(crate) fn look_ups(&self) -> usize {
        self.look_ups.load(SeqCst)
    }

    fn store(&self, request: NewRequest) -> StoreFuture<'_, Enqueued> {
        let stored = self.inner.enqueue(request);
        if !self.loses_replies.load(SeqCst) {
            return stored;
        }
        Box::pin(async {
            stored.await?;
            Err(StoreError::Unavailable("the reply is lost".to_owned()))
        })
    }

    fn check<'a, T: Send + 'a>(&self, operation: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        match self.is_down.load(SeqCst) {
            true => Box::pin(async { Err(StoreError::Unavailable("it is down".to_owned())) }),
            false => operation,
        }
    }
}

macro_rules! passes_on {
    ($trait:ident: $(fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        impl $trait for Faulty {
            $(fn $name(&self $(, $arg: $type)*) -> StoreFuture<'_, $result> {
                self.check(self.inner.$name($($arg),*))
            })*
        }
    };
}

impl Store for Faulty {
    fn enqueue(&self, request: NewRequest) -> StoreFuture<'_, Enqueued> {
        self.check(self.store(request))
    }

    fn stored_bytes(&self, tenant: &[u8]) -> StoreFuture<'_, u64> {
        self.look_ups.fetch_add(1, SeqCst);
        let bytes = self.check(self.inner.stored_bytes(tenant));
        Box::pin(async {
            tokio::task::yield_now().await;
            bytes.await
        })
    }

    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        self.check(self.inner.get(id))
    }

    fn response(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        self.check(self.inner.response(id))
    }

    fn ended(&self, id: RequestId) -> StoreFuture<'_, Option<Found>> {
        self.check(self.inner.ended(id))
    }

    fn cancel(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        self.check(self.inner.cancel(id))
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        self.check(self.inner.backlog())
    }

    fn changed(&self, version: u64) -> StoreFuture<'_, BacklogChange> {
        self.check(self.inner.changed(version))
    }

    fn fetch(&self, queue: &str, max: usize) -> StoreFuture<'_, Vec<Fetched>> {
        self.check(self.inner.fetch(queue, max))
    }

    fn called(&self, lease: &Lease) -> StoreFuture<'_, ()> {
        self.check(self.inner.called(lease))
    }

    fn stopped(&self, lease: &Lease) -> StoreFuture<'_, Stop> {
        self.check(self.inner.stopped(lease))
    }

    fn finish(&self, lease: Lease, outcome: Outcome) -> StoreFuture<'_, bool> {
        self.check(self.inner.finish(lease, outcome))
    }

    fn now(&self) -> SystemTime {
        self.inner.now()
    }

    fn system_time(&self, time: SystemTime) -> SystemTime {
        self.shown(time)
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.check(self.inner.close())
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        Some(self)
    }

    fn webhooks(&self) -> Option<&dyn Webhooks> {
        Some(self)
    }

    fn key_values(&self) -> Option<&dyn KeyValues> {
        Some(self)
    }

    fn drain(&self) -> Option<&dyn Drain> {
        Some(self)
    }
}

passes_on! { Streams:
    fn append(&self, lease: &Lease, data: Bytes) -> ();
    fn chunks(&self, id: RequestId, after: u64) -> Option<Chunks>;
}

passes_on! { Operate:
    fn position(&self, id: RequestId) -> Option<u64>;
    fn retry(&self, id: RequestId) -> Option<RequestInfo>;
    fn list(&self, listing: Listing) -> Page;
    fn pause(&self, pause: Pause) -> ();
    fn resume(&self, scope: PauseScope) -> bool;
    fn pauses(&self) -> Vec<Pause>;
    fn depths(&self) -> Vec<QueueDepth>;
    fn totals(&self) -> Vec<QueueTotal>;
}

impl Webhooks for Faulty {
    fn due_webhooks(&self, max: usize) -> StoreFuture<'_, Vec<DueWebhook>> {
        let due = self.check(self.inner.due_webhooks(max));
        Box::pin(async move {
            let mut due = due.await?;
            for webhook in &mut due {
                webhook.info.ended = webhook.info.ended.map(|ended| self.shown(ended));
            }
            Ok(due)
        })
    }

    fn settle_webhook(
        &self,
        id: RequestId,
        retries: u32,
        again: Option<Duration>,
    ) -> StoreFuture<'_, ()> {
        self.check(self.inner.settle_webhook(id, retries, again))
    }
}

passes_on! { KeyValues:
    fn put(&self, key: &str, value: Bytes) -> ();
    fn value(&self, key: &str) -> Option<Bytes>;
    fn remove(&self, key: &str) -> bool;
    fn values(&self, prefix: &str, after: Option<&str>, max: usize) -> Vec<(String, Bytes)>;
}

passes_on! { Drain:
    fn known(&self, request: &NewRequest) -> Option<RequestInfo>;
    fn request(&self, id: RequestId) -> Option<Bytes>;
}
