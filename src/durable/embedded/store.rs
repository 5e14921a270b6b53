//! The operations of the store.

use std::time::Duration;

use bytes::Bytes;

use std::sync::Arc;

use super::EmbeddedStore;
use super::commits::{Answer, Kind};
use super::shared::Shared;
use super::state::Started;
use super::write::Write;
use crate::durable::{
    Backlog, Chunks, DueWebhook, Enqueued, Fetched, Lease, Listing, NewRequest, Outcome, Page,
    Pause, PauseScope, QueueDepth, RequestId, RequestInfo, Stop, Store, StoreError, StoreFuture,
};

impl Store for EmbeddedStore {
    fn enqueue(&self, request: NewRequest) -> StoreFuture<'_, Enqueued> {
        let shared = &self.shared;
        Box::pin(shared.grow(|change| change.state.enqueue(request, change.now)))
    }

    fn known(&self, request: &NewRequest) -> StoreFuture<'_, Option<RequestInfo>> {
        let request = request.clone();
        Box::pin(async move {
            self.shared
                .read(move |state, _| state.known(&request))
                .await?
        })
    }

    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        Box::pin(self.shared.read(move |state, _| state.get(id)))
    }

    fn position(&self, id: RequestId) -> StoreFuture<'_, Option<u64>> {
        Box::pin(self.shared.read(move |state, _| state.position(id)))
    }

    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            match self.shared.read(|state, _| state.segment(id)).await? {
                Some(segment) => {
                    let body = self.shared.load(move |storage| storage.body(segment, id));
                    body.await
                }
                None => Ok(None),
            }
        })
    }

    fn response(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            let segment = self.shared.read(|state, _| state.segment_of_response(id));
            match segment.await? {
                Some(segment) => {
                    let response = self
                        .shared
                        .load(move |storage| storage.response(segment, id));
                    response.await
                }
                None => Ok(None),
            }
        })
    }

    fn ended(&self, id: RequestId) -> StoreFuture<'_, ()> {
        let has_ended = move |state: &super::state::State| state.has_ended(id).then_some(());
        Box::pin(self.shared.wait_for(id, has_ended))
    }

    fn cancel(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let shared = &self.shared;
        Box::pin(shared.change(move |change| Ok(change.state.cancel(id, change.now))))
    }

    fn retry(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let shared = &self.shared;
        Box::pin(shared.change(move |change| Ok(change.state.retry(id, change.now))))
    }

    fn list(&self, listing: Listing) -> StoreFuture<'_, Page> {
        Box::pin(self.shared.read(move |state, _| state.list(&listing)))
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        Box::pin(async move {
            // Before the state is read: a change in between is announced once more.
            let version = *self.shared.version.borrow();
            let backlog = self.shared.read(|state, _| state.backlog(version));
            backlog.await
        })
    }

    fn changed(&self, version: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            // So that the driver runs: it lets delayed requests begin.
            self.shared.read(|_, _| ()).await?;
            let mut versions = self.shared.version.subscribe();
            let changed = versions.wait_for(|present| *present != version).await;
            changed.map(|_| ()).map_err(|_| closed())
        })
    }

    fn fetch(&self, queue: &str, max: usize) -> StoreFuture<'_, Vec<Fetched>> {
        let (shared, queue) = (&self.shared, queue.to_owned());
        Box::pin(async move {
            let taker = Arc::clone(shared);
            let taken = shared.change(move |change| {
                let started = change.state.fetch(&queue, max, change.now);
                Ok(Taken {
                    shared: taker,
                    started,
                })
            });
            taken.await?.load().await
        })
    }

    fn called(&self, lease: &Lease) -> StoreFuture<'_, ()> {
        let (shared, lease) = (&self.shared, lease.clone());
        Box::pin(shared.change(move |change| {
            change.state.called(&lease);
            Ok(())
        }))
    }

    fn stopped(&self, lease: &Lease) -> StoreFuture<'_, Stop> {
        let (shared, lease) = (&self.shared, lease.clone());
        Box::pin(async move {
            let id = lease.id();
            shared.wait_for(id, |state| state.stop(&lease)).await
        })
    }

    fn finish(&self, lease: Lease, outcome: Outcome) -> StoreFuture<'_, bool> {
        let shared = &self.shared;
        Box::pin(shared.change(move |change| Ok(change.state.finish(&lease, outcome, change.now))))
    }

    fn append(&self, lease: &Lease, data: Bytes) -> StoreFuture<'_, ()> {
        let (shared, lease) = (&self.shared, lease.clone());
        Box::pin(shared.grow(move |change| {
            change.state.append(&lease, data);
            Ok(())
        }))
    }

    fn chunks(&self, id: RequestId, after: u64) -> StoreFuture<'_, Option<Chunks>> {
        Box::pin(async move {
            let found = self.shared.wait_for(id, |state| {
                let pieces = state.pieces(id, after);
                let is_ready =
                    pieces.is_none_or(|pieces| pieces.last >= pieces.first || pieces.is_end);
                is_ready.then_some(pieces)
            });
            let Some(pieces) = found.await? else {
                return Ok(None);
            };
            let mut chunks = Chunks {
                chunks: Vec::new(),
                has_gap: pieces.has_gap,
                is_end: pieces.is_end,
            };
            if pieces.last >= pieces.first {
                let (segment, first, last) = (pieces.segment, pieces.first, pieces.last);
                let load = self
                    .shared
                    .load(move |storage| storage.chunks(segment, id, first, last));
                chunks.chunks = load.await?;
            }
            Ok(Some(chunks))
        })
    }

    fn pause(&self, pause: Pause) -> StoreFuture<'_, ()> {
        Box::pin(self.shared.change(|change| {
            change.state.pause(pause, change.now);
            Ok(())
        }))
    }

    fn resume(&self, scope: PauseScope) -> StoreFuture<'_, bool> {
        let shared = &self.shared;
        Box::pin(shared.change(move |change| Ok(change.state.resume(&scope, change.now))))
    }

    fn pauses(&self) -> StoreFuture<'_, Vec<Pause>> {
        Box::pin(self.shared.read(|state, _| state.pauses()))
    }

    fn depths(&self) -> StoreFuture<'_, Vec<QueueDepth>> {
        Box::pin(self.shared.read(|state, now| state.depths(now)))
    }

    fn due_webhooks(&self, max: usize) -> StoreFuture<'_, Vec<DueWebhook>> {
        let shared = &self.shared;
        Box::pin(shared.change(move |change| Ok(change.state.due_webhooks(max, change.now))))
    }

    fn settle_webhook(&self, id: RequestId, again: Option<Duration>) -> StoreFuture<'_, ()> {
        Box::pin(self.shared.change(move |change| {
            change.state.settle_webhook(id, again, change.now);
            Ok(())
        }))
    }

    fn put(&self, key: &str, value: Bytes) -> StoreFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(self.shared.grow(move |change| {
            change.storage.check_key(&key)?;
            change.state.write(Write::Put { key, value });
            Ok(())
        }))
    }

    fn value(&self, key: &str) -> StoreFuture<'_, Option<Bytes>> {
        let key = key.to_owned();
        Box::pin(async move {
            self.shared.read(|_, _| ()).await?;
            self.shared.load(move |storage| storage.value(&key)).await
        })
    }

    fn remove(&self, key: &str) -> StoreFuture<'_, bool> {
        let key = key.to_owned();
        Box::pin(self.shared.change(move |change| {
            let is_there = change.storage.value(&key)?.is_some();
            change.state.write(Write::Remove { key });
            Ok(is_there)
        }))
    }

    fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> StoreFuture<'_, Vec<(String, Bytes)>> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        Box::pin(async move {
            self.shared.read(|_, _| ()).await?;
            let values = move |storage: &dyn super::storage::Storage| {
                storage.values(&prefix, after.as_deref(), max)
            };
            self.shared.load(values).await
        })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let closed = self.shared.change(|change| {
                change.state.give_back_starting(change.now);
                Ok(())
            });
            let closed = closed.await;
            self.shared.stop();
            let shared = Arc::clone(&self.shared);
            // It waits for the disk.
            let joined = tokio::task::spawn_blocking(move || shared.join()).await;
            joined.map_err(|why| StoreError::Unavailable(why.to_string()))?;
            closed
        })
    }
}

/// Requests that were taken. Those that their worker does not get are given back.
struct Taken {
    shared: Arc<Shared>,
    started: Vec<Started>,
}

impl Taken {
    /// Reads the bodies.
    async fn load(mut self) -> Result<Vec<Fetched>, StoreError> {
        if self.started.is_empty() {
            return Ok(Vec::new());
        }
        let bodies = self.started.iter();
        let bodies: Vec<_> = bodies
            .map(|started| (started.segment, started.lease.id()))
            .collect();
        let bodies = self.shared.load(move |storage| {
            let bodies = bodies.into_iter();
            let bodies = bodies.map(|(segment, id)| storage.body(segment, id));
            bodies.collect::<Result<Vec<_>, _>>()
        });
        let bodies = bodies.await?;
        let started = std::mem::take(&mut self.started).into_iter();
        let fetched = started.zip(bodies).map(|(started, body)| {
            Fetched::new(started.lease, started.info, body.unwrap_or_default())
        });
        Ok(fetched.collect())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let started = std::mem::take(&mut self.started);
        if started.is_empty() {
            return;
        }
        // A store that is closed has given them back.
        let _ = self.shared.submit(Kind::Settles, move |change| {
            for started in &started {
                change.state.give_back(&started.lease, change.now);
            }
            Box::new(|_| ()) as Answer
        });
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_owned())
}
