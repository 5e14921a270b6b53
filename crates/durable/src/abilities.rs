//! The abilities that a [`Store`] may have beside the minimum.
//!
//! Callers of an `Arc<dyn Store>` need none of these traits: each operation is a method of `dyn Store`, too, and returns
//! [`StoreError::Unsupported`] if the store does not offer it.

use std::future::ready;
use std::time::Duration;

use bytes::Bytes;

use crate::{
    Chunks, DueWebhook, Lease, Listing, NewRequest, Page, Pause, PauseScope, QueueDepth,
    QueueTotal, RequestId, RequestInfo, Store, StoreError, StoreFuture,
};

/// Responses that are read while they are made.
pub trait Streams: Send + Sync {
    /// Adds a piece to a response in progress, for callers that read it as a stream.
    fn append(&self, lease: &Lease, data: Bytes) -> StoreFuture<'_, ()>;

    /// Waits until a response has pieces with numbers above `after` or the request has ended, and returns those pieces.
    ///
    /// The first piece of a response has the number 1. A store may return only the first of many pieces, so that they fit
    /// into memory. Returns `None` if the request is unknown.
    fn chunks(&self, id: RequestId, after: u64) -> StoreFuture<'_, Option<Chunks>>;
}

/// Lists, depths, retries and pauses, for operators.
pub trait Operate: Send + Sync {
    /// Returns the position of a waiting request in its queue, where 1 is the next one.
    fn position(&self, id: RequestId) -> StoreFuture<'_, Option<u64>>;

    /// Puts a failed request back into its queue, and returns its state after that.
    ///
    /// The attempts count from 0 again, and the deadline is removed. The request counts towards the limits of
    /// [`StoreConfig`](crate::StoreConfig) again, but a full store puts it back all the same: the limits are for new
    /// requests, and an operator's retry has to work while these pile up. A request in any other state is returned
    /// unchanged.
    fn retry(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>>;

    /// Returns one page of the requests that match a listing.
    fn list(&self, listing: Listing) -> StoreFuture<'_, Page>;

    /// Begins a pause, during which workers can't take the requests of its scope. It replaces a pause of the same
    /// scope.
    fn pause(&self, pause: Pause) -> StoreFuture<'_, ()>;

    /// Ends the pause of a scope. Returns `false` if the scope was not paused.
    fn resume(&self, scope: PauseScope) -> StoreFuture<'_, bool>;

    /// Returns all pauses that are in force.
    fn pauses(&self) -> StoreFuture<'_, Vec<Pause>>;

    /// Returns the depth of each level of each queue that holds at least one request.
    fn depths(&self) -> StoreFuture<'_, Vec<QueueDepth>>;

    /// Returns the totals of each queue. A store for one process counts from its opening, and a shared store counts for
    /// all processes since its first use.
    fn totals(&self) -> StoreFuture<'_, Vec<QueueTotal>>;
}

/// The webhooks of requests, which a [`WebhookSender`](crate::webhooks) sends.
pub trait Webhooks: Send + Sync {
    /// Takes up to `max` webhooks that are due. Each becomes due again a minute later, unless it is
    /// [settled](Self::settle_webhook) before.
    fn due_webhooks(&self, max: usize) -> StoreFuture<'_, Vec<DueWebhook>>;

    /// Settles a webhook for good, or makes it due again after the time in `again`. If the request has been retried more than
    /// `retries` times since, its webhook is that of another end and stays as it is.
    fn settle_webhook(
        &self,
        id: RequestId,
        retries: u32,
        again: Option<Duration>,
    ) -> StoreFuture<'_, ()>;
}

/// Values under keys, for components on top of a store, such as files and batches.
pub trait KeyValues: Send + Sync {
    /// Stores a value under a key and replaces its former value. Components on top of a store use it, such as files and
    /// batches.
    fn put(&self, key: &str, value: Bytes) -> StoreFuture<'_, ()>;

    /// Returns the value of a key, or `None` for an unknown key.
    fn value(&self, key: &str) -> StoreFuture<'_, Option<Bytes>>;

    /// Removes a key with its value. Returns `false` if the key was unknown.
    fn remove(&self, key: &str) -> StoreFuture<'_, bool>;

    /// Returns up to `max` keys with their values, in the byte order of the keys. The keys begin with `prefix` and come
    /// after `after`. A store may return fewer than there are, so that they fit into memory, but at least one of them.
    fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> StoreFuture<'_, Vec<(String, Bytes)>>;
}

/// Look-ups of requests that were stored. A [`DrainStore`](crate::DrainStore) makes them in the store that it drains, and by them
/// a tenant at its quota gets the answer to a request that it repeats.
pub trait Drain: Send + Sync {
    /// Returns the stored request with the same identifier, or with the same idempotency key and fingerprint. The given
    /// request itself is not stored.
    ///
    /// # Errors
    ///
    /// Returns an error if another request has the idempotency key.
    fn known(&self, request: &NewRequest) -> StoreFuture<'_, Option<RequestInfo>>;

    /// Returns the request itself, in the form in which it was stored.
    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>>;
}

/// The operations that a store may offer.
///
/// # Errors
///
/// Each resolves to [`StoreError::Unsupported`] if the store does not offer it.
impl dyn Store {
    /// Calls [`Streams::append`].
    pub fn append(&self, lease: &Lease, data: Bytes) -> StoreFuture<'_, ()> {
        ask(self.streams(), "append", |it| it.append(lease, data))
    }

    /// Calls [`Streams::chunks`].
    pub fn chunks(&self, id: RequestId, after: u64) -> StoreFuture<'_, Option<Chunks>> {
        ask(self.streams(), "chunks", |it| it.chunks(id, after))
    }

    /// Calls [`Operate::position`].
    pub fn position(&self, id: RequestId) -> StoreFuture<'_, Option<u64>> {
        ask(self.operate(), "position", |it| it.position(id))
    }

    /// Calls [`Operate::retry`].
    pub fn retry(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        ask(self.operate(), "retry", |it| it.retry(id))
    }

    /// Calls [`Operate::list`].
    pub fn list(&self, listing: Listing) -> StoreFuture<'_, Page> {
        ask(self.operate(), "list", |it| it.list(listing))
    }

    /// Calls [`Operate::pause`].
    pub fn pause(&self, pause: Pause) -> StoreFuture<'_, ()> {
        ask(self.operate(), "pause", |it| it.pause(pause))
    }

    /// Calls [`Operate::resume`].
    pub fn resume(&self, scope: PauseScope) -> StoreFuture<'_, bool> {
        ask(self.operate(), "resume", |it| it.resume(scope))
    }

    /// Calls [`Operate::pauses`].
    pub fn pauses(&self) -> StoreFuture<'_, Vec<Pause>> {
        ask(self.operate(), "pauses", |it| it.pauses())
    }

    /// Calls [`Operate::depths`].
    pub fn depths(&self) -> StoreFuture<'_, Vec<QueueDepth>> {
        ask(self.operate(), "depths", |it| it.depths())
    }

    /// Calls [`Operate::totals`].
    pub fn totals(&self) -> StoreFuture<'_, Vec<QueueTotal>> {
        ask(self.operate(), "totals", |it| it.totals())
    }

    /// Calls [`Webhooks::due_webhooks`].
    pub fn due_webhooks(&self, max: usize) -> StoreFuture<'_, Vec<DueWebhook>> {
        ask(self.webhooks(), "due_webhooks", |it| it.due_webhooks(max))
    }

    /// Calls [`Webhooks::settle_webhook`].
    pub fn settle_webhook(
        &self,
        id: RequestId,
        retries: u32,
        again: Option<Duration>,
    ) -> StoreFuture<'_, ()> {
        ask(self.webhooks(), "settle_webhook", |it| {
            it.settle_webhook(id, retries, again)
        })
    }

    /// Calls [`KeyValues::put`].
    pub fn put(&self, key: &str, value: Bytes) -> StoreFuture<'_, ()> {
        ask(self.key_values(), "put", |it| it.put(key, value))
    }

    /// Calls [`KeyValues::value`].
    pub fn value(&self, key: &str) -> StoreFuture<'_, Option<Bytes>> {
        ask(self.key_values(), "value", |it| it.value(key))
    }

    /// Calls [`KeyValues::remove`].
    pub fn remove(&self, key: &str) -> StoreFuture<'_, bool> {
        ask(self.key_values(), "remove", |it| it.remove(key))
    }

    /// Calls [`KeyValues::values`].
    pub fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> StoreFuture<'_, Vec<(String, Bytes)>> {
        ask(self.key_values(), "values", |it| {
            it.values(prefix, after, max)
        })
    }

    /// Calls [`Drain::known`].
    pub fn known(&self, request: &NewRequest) -> StoreFuture<'_, Option<RequestInfo>> {
        ask(self.drain(), "known", |it| it.known(request))
    }

    /// Calls [`Drain::request`].
    pub fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        ask(self.drain(), "request", |it| it.request(id))
    }
}

fn ask<'a, A: ?Sized, T: Send + 'a>(
    ability: Option<&'a A>,
    operation: &'static str,
    call: impl FnOnce(&'a A) -> StoreFuture<'a, T>,
) -> StoreFuture<'a, T> {
    match ability {
        Some(ability) => call(ability),
        None => Box::pin(ready(Err(StoreError::Unsupported(operation)))),
    }
}
