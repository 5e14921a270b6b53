//! The implementation of [`Store`] for a [`DrainStore`].

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{DrainStore, Side};
use crate::{
    Backlog, BacklogChange, Chunks, Drain, DueWebhook, Enqueued, Fetched, Found, KeyValues, Lease,
    Listing, NewRequest, Operate, Outcome, Page, Pause, PauseScope, QueueDepth, QueueTotal,
    RequestId, RequestInfo, ResponsePart, Stop, Store, StoreFuture, Streams, Webhooks,
};

impl Store for DrainStore {
    fn enqueue(&self, request: NewRequest) -> StoreFuture<'_, Enqueued> {
        Box::pin(async move {
            // Only unlisted requests and those with a key can be repetitions, so all others skip the old store.
            let may_be_old = request.idempotency.is_some() || !request.is_listed;
            if may_be_old && let Some(known) = self.old.known(&request).await? {
                return Ok(Enqueued::Known(known));
            }
            self.new.enqueue(request).await
        })
    }

    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        Box::pin(self.either(move |store| store.get(id)))
    }

    fn response(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(self.either(move |store| store.response(id)))
    }

    fn response_part(
        &self,
        id: RequestId,
        offset: u64,
        max: usize,
    ) -> StoreFuture<'_, Option<ResponsePart>> {
        Box::pin(self.either(move |store| store.response_part(id, offset, max)))
    }

    fn ended(&self, id: RequestId) -> StoreFuture<'_, Option<Found>> {
        Box::pin(async move {
            match self.side_of(id).await? {
                Some(side) => self.at(side).ended(id).await,
                None => Ok(None),
            }
        })
    }

    fn cancel(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        Box::pin(self.either(move |store| store.cancel(id)))
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        Box::pin(self.both_backlogs())
    }

    fn changed(&self, version: u64) -> StoreFuture<'_, BacklogChange> {
        Box::pin(async move {
            self.either_changed(version).await;
            Ok(BacklogChange::Any)
        })
    }

    fn fetch(&self, queue: &str, max: usize) -> StoreFuture<'_, Vec<Fetched>> {
        let queue = queue.to_owned();
        Box::pin(async move { self.fetch_from_one(&queue, max).await })
    }

    fn called(&self, lease: &Lease) -> StoreFuture<'_, ()> {
        let (side, lease) = Side::of(lease);
        Box::pin(async move { self.at(side).called(&lease).await })
    }

    fn stopped(&self, lease: &Lease) -> StoreFuture<'_, Stop> {
        let (side, lease) = Side::of(lease);
        Box::pin(async move { self.at(side).stopped(&lease).await })
    }

    fn finish(&self, lease: Lease, outcome: Outcome) -> StoreFuture<'_, bool> {
        let (side, lease) = Side::of(&lease);
        self.at(side).finish(lease, outcome)
    }

    fn stored_bytes(&self, tenant: &[u8]) -> StoreFuture<'_, u64> {
        self.new.stored_bytes(tenant)
    }

    fn free_bytes(&self) -> StoreFuture<'_, Option<u64>> {
        self.new.free_bytes()
    }

    fn now(&self) -> SystemTime {
        self.new.now()
    }

    fn system_time(&self, time: SystemTime) -> SystemTime {
        self.new.system_time(time)
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (new, old) = tokio::join!(self.new.close(), self.old.close());
            new.and(old)
        })
    }

    fn streams(&self) -> Option<&dyn Streams> {
        (self.old.streams().is_some() && self.new.streams().is_some()).then_some(self)
    }

    fn operate(&self) -> Option<&dyn Operate> {
        (self.old.operate().is_some() && self.new.operate().is_some()).then_some(self)
    }

    fn webhooks(&self) -> Option<&dyn Webhooks> {
        (self.old.webhooks().is_some() && self.new.webhooks().is_some()).then_some(self)
    }

    fn key_values(&self) -> Option<&dyn KeyValues> {
        (self.old.key_values().is_some() && self.new.key_values().is_some()).then_some(self)
    }

    fn drain(&self) -> Option<&dyn Drain> {
        (self.old.drain().is_some() && self.new.drain().is_some()).then_some(self)
    }
}

impl Streams for DrainStore {
    fn append(&self, lease: &Lease, data: Bytes) -> StoreFuture<'_, ()> {
        let (side, lease) = Side::of(lease);
        Box::pin(async move { self.at(side).append(&lease, data).await })
    }

    fn chunks(&self, id: RequestId, after: u64) -> StoreFuture<'_, Option<Chunks>> {
        Box::pin(self.either(move |store| store.chunks(id, after)))
    }
}

impl Operate for DrainStore {
    fn position(&self, id: RequestId) -> StoreFuture<'_, Option<u64>> {
        Box::pin(self.either(move |store| store.position(id)))
    }

    fn retry(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        Box::pin(self.either(move |store| store.retry(id)))
    }

    fn list(&self, listing: Listing) -> StoreFuture<'_, Page> {
        Box::pin(self.both_lists(listing))
    }

    fn pause(&self, pause: Pause) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.new.pause(pause.clone()).await?;
            self.old.pause(pause).await
        })
    }

    fn resume(&self, scope: PauseScope) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let is_new = self.new.resume(scope.clone()).await?;
            Ok(self.old.resume(scope).await? || is_new)
        })
    }

    fn pauses(&self) -> StoreFuture<'_, Vec<Pause>> {
        Box::pin(self.both_pauses())
    }

    fn depths(&self) -> StoreFuture<'_, Vec<QueueDepth>> {
        Box::pin(self.both_depths())
    }

    fn totals(&self) -> StoreFuture<'_, Vec<QueueTotal>> {
        Box::pin(self.both_totals())
    }
}

impl Webhooks for DrainStore {
    fn due_webhooks(&self, max: usize) -> StoreFuture<'_, Vec<DueWebhook>> {
        Box::pin(self.webhooks_of_both(max))
    }

    fn settle_webhook(
        &self,
        id: RequestId,
        retries: u32,
        again: Option<Duration>,
    ) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            match self.side_of(id).await? {
                Some(side) => self.at(side).settle_webhook(id, retries, again).await,
                None => Ok(()),
            }
        })
    }
}

impl KeyValues for DrainStore {
    fn put(&self, key: &str, value: Bytes) -> StoreFuture<'_, ()> {
        self.new.put(key, value)
    }

    fn value(&self, key: &str) -> StoreFuture<'_, Option<Bytes>> {
        let key = key.to_owned();
        Box::pin(async move {
            match self.new.value(&key).await? {
                Some(value) => Ok(Some(value)),
                None => self.old.value(&key).await,
            }
        })
    }

    fn remove(&self, key: &str) -> StoreFuture<'_, bool> {
        let key = key.to_owned();
        Box::pin(async move {
            // The old value goes first, because the new one still hides it if this operation stops half-way.
            let was_old = self.old.remove(&key).await?;
            Ok(self.new.remove(&key).await? || was_old)
        })
    }

    fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> StoreFuture<'_, Vec<(String, Bytes)>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        Box::pin(async move { self.both_values(&prefix, after.as_deref(), max).await })
    }
}

impl Drain for DrainStore {
    fn known(&self, request: &NewRequest) -> StoreFuture<'_, Option<RequestInfo>> {
        let request = request.clone();
        Box::pin(async move {
            match self.old.known(&request).await? {
                Some(known) => Ok(Some(known)),
                None => self.new.known(&request).await,
            }
        })
    }

    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(self.either(move |store| store.request(id)))
    }
}
