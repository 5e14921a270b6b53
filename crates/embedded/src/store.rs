//! The operations of the store.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use std::sync::Arc;

use super::EmbeddedStore;
use super::archive::{Archive, Part, check_key};
use super::commits::{Answer, Kind};
use super::rows::Stored;
use super::shared::{Change, Shared};
use super::state::{Pieces, Started, State};
use super::write::Write;
use tower_triage_durable::{
    Backlog, BacklogChange, Chunks, Drain, DueWebhook, Enqueued, Fetched, Found, KeyValues, Lease,
    Listing, NewRequest, Operate, Outcome, Page, Pause, PauseScope, QueueDepth, QueueTotal,
    RequestId, RequestInfo, RequestStatus, ResponsePart, Stop, Store, StoreError, StoreFuture,
    Streams, Webhooks,
};

impl Store for EmbeddedStore {
    fn enqueue(&self, request: NewRequest) -> StoreFuture<'_, Enqueued> {
        let shared = &self.shared;
        let store = |change: &mut Change<'_>| {
            let (archive, now) = (change.archive, change.now);
            change.state.enqueue(request, archive, now)
        };
        Box::pin(async move { Ok(shared.clock.shown(shared.grow(store).await?)) })
    }

    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        Box::pin(async move {
            let found = self.find(id, move |state| state.get(id), |stored| stored.info());
            Ok(self.shared.clock.shown(found.await?))
        })
    }

    fn response(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(self.read_response(id, |archive, (segment, seq)| archive.response(segment, seq)))
    }

    fn response_part(
        &self,
        id: RequestId,
        offset: u64,
        max: usize,
    ) -> StoreFuture<'_, Option<ResponsePart>> {
        Box::pin(self.read_response(id, move |archive, (segment, seq)| {
            archive.response_part(segment, seq, offset, max)
        }))
    }

    fn ended(&self, id: RequestId) -> StoreFuture<'_, Option<Found>> {
        let has_ended = move |state: &State| state.has_ended(id).then_some(None);
        Box::pin(self.shared.wait_for(id, has_ended))
    }

    fn cancel(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let shared = &self.shared;
        let cancel = move |change: &mut Change<'_>| {
            let (archive, now) = (change.archive, change.now);
            change.state.cancel(id, archive, now)
        };
        Box::pin(async move { Ok(shared.clock.shown(shared.change(cancel).await?)) })
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        Box::pin(async move {
            // The version is read before the state, so that a change in between is announced once more.
            let version = *self.shared.version.borrow();
            let backlog = self.shared.read(|state, _| state.backlog(version));
            Ok(self.shared.clock.shown(backlog.await?))
        })
    }

    fn changed(&self, version: u64) -> StoreFuture<'_, BacklogChange> {
        Box::pin(async move {
            // A read makes sure that the driver runs, which lets delayed requests start.
            self.shared.read(|_, _| ()).await?;
            let mut versions = self.shared.version.subscribe();
            let changed = versions.wait_for(|present| *present != version).await;
            changed.map(|_| BacklogChange::Any).map_err(|_| closed())
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
            Ok(shared.clock.shown(taken.await?.load().await?))
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
            let stop = shared.wait_for(id, |state| state.stop(&lease)).await?;
            // The cancellation may have come after the loss of the lease, so the final status decides.
            let info = self.get(id).await?;
            Ok(
                match info.is_some_and(|info| info.status == RequestStatus::Canceled) {
                    true => Stop::Canceled,
                    false => stop,
                },
            )
        })
    }

    fn finish(&self, lease: Lease, outcome: Outcome) -> StoreFuture<'_, bool> {
        let shared = &self.shared;
        Box::pin(shared.change(move |change| Ok(change.state.finish(&lease, outcome, change.now))))
    }

    fn stored_bytes(&self, tenant: &[u8]) -> StoreFuture<'_, u64> {
        let tenant = tenant.to_vec();
        Box::pin(
            self.shared
                .read(move |state, _| state.stored_bytes(&tenant)),
        )
    }

    fn free_bytes(&self) -> StoreFuture<'_, Option<u64>> {
        Box::pin(self.shared.load(|archive| archive.free_bytes()))
    }

    fn now(&self) -> SystemTime {
        self.shared.clock.now().to_system()
    }

    fn system_time(&self, time: SystemTime) -> SystemTime {
        self.shared.clock.shown(time)
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
            // Joining waits for the disk, so it runs on a blocking thread.
            let joined = tokio::task::spawn_blocking(move || shared.join()).await;
            joined.map_err(|why| StoreError::Unavailable(why.to_string()))?;
            closed
        })
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

impl Streams for EmbeddedStore {
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
                let is_ready = pieces.is_none_or(|pieces| pieces.is_ready());
                is_ready.then_some(pieces)
            });
            let found = match found.await? {
                Some(pieces) => Some(pieces),
                None => {
                    let stored = |stored: Stored| Pieces::of_stored(&stored, after);
                    self.find(id, |state| state.pieces(id, after), stored)
                        .await?
                }
            };
            let Some(pieces) = found else {
                return Ok(None);
            };
            let mut chunks = Chunks {
                chunks: Vec::new(),
                has_gap: pieces.has_gap,
                is_end: pieces.is_end,
            };
            if pieces.last >= pieces.first {
                let load = self.shared.load(move |archive| {
                    let (segment, seq) = pieces.place;
                    archive.chunks(segment, seq, pieces.first, pieces.last)
                });
                chunks.chunks = load.await?;
                let read = chunks.chunks.last().map(|chunk| chunk.number);
                chunks.is_end &= read.is_none_or(|read| read == pieces.last);
            }
            Ok(Some(chunks))
        })
    }
}

impl Operate for EmbeddedStore {
    fn position(&self, id: RequestId) -> StoreFuture<'_, Option<u64>> {
        Box::pin(self.shared.read(move |state, _| state.position(id)))
    }

    fn retry(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        let shared = &self.shared;
        let retry = move |change: &mut Change<'_>| {
            let (archive, now) = (change.archive, change.now);
            change.state.retry(id, archive, now)
        };
        Box::pin(async move { Ok(shared.clock.shown(shared.change(retry).await?)) })
    }

    fn list(&self, listing: Listing) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            let mut page = self.list_page(listing).await?;
            page.requests = self.shared.clock.shown(page.requests);
            Ok(page)
        })
    }

    fn pause(&self, pause: Pause) -> StoreFuture<'_, ()> {
        let pause = self.shared.clock.read(pause);
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
        Box::pin(async move {
            let pauses = self.shared.read(|state, _| state.pauses()).await?;
            Ok(self.shared.clock.shown(pauses))
        })
    }

    fn depths(&self) -> StoreFuture<'_, Vec<QueueDepth>> {
        Box::pin(self.shared.read(|state, now| state.depths(now)))
    }

    fn totals(&self) -> StoreFuture<'_, Vec<QueueTotal>> {
        Box::pin(self.shared.read(|state, _| state.totals()))
    }
}

impl Webhooks for EmbeddedStore {
    fn due_webhooks(&self, max: usize) -> StoreFuture<'_, Vec<DueWebhook>> {
        let shared = &self.shared;
        Box::pin(async move {
            let due = move |change: &mut Change<'_>| Ok(change.state.due_webhooks(max, change.now));
            Ok(shared.clock.shown(shared.change(due).await?))
        })
    }

    fn settle_webhook(
        &self,
        id: RequestId,
        retries: u32,
        again: Option<Duration>,
    ) -> StoreFuture<'_, ()> {
        Box::pin(self.shared.change(move |change| {
            change.state.settle_webhook(id, retries, again, change.now);
            Ok(())
        }))
    }
}

impl KeyValues for EmbeddedStore {
    fn put(&self, key: &str, value: Bytes) -> StoreFuture<'_, ()> {
        let key = key.to_owned();
        Box::pin(self.shared.grow(move |change| {
            check_key(&key)?;
            change.state.write(Write::Put { key, value });
            Ok(())
        }))
    }

    fn value(&self, key: &str) -> StoreFuture<'_, Option<Bytes>> {
        let key = key.to_owned();
        Box::pin(async move {
            self.shared.read(|_, _| ()).await?;
            self.shared.load(move |archive| archive.value(&key)).await
        })
    }

    fn remove(&self, key: &str) -> StoreFuture<'_, bool> {
        let key = key.to_owned();
        Box::pin(self.shared.change(move |change| {
            let is_there = change.archive.value(&key)?.is_some();
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
            let load = self
                .shared
                .load(move |archive| archive.values(&prefix, after.as_deref(), max));
            load.await
        })
    }
}

impl Drain for EmbeddedStore {
    fn known(&self, request: &NewRequest) -> StoreFuture<'_, Option<RequestInfo>> {
        let request = request.clone();
        let known = move |change: &mut Change<'_>| {
            let (archive, now) = (change.archive, change.now);
            change.state.known(&request, archive, now)
        };
        Box::pin(async move { Ok(self.shared.clock.shown(self.shared.change(known).await?)) })
    }

    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            let place = self.find(id, |state| state.place(id), |stored| stored.place());
            let Some((segment, seq)) = place.await? else {
                return Ok(None);
            };
            let body = self.shared.load(move |archive| archive.body(segment, seq));
            body.await
        })
    }
}

impl EmbeddedStore {
    /// Returns a property of a request. `in_memory` reads it from the state, and `stored` reads it from the archive.
    async fn find<T>(
        &self,
        id: RequestId,
        in_memory: impl Fn(&State) -> Option<T>,
        stored: impl Fn(Stored) -> T,
    ) -> Result<Option<T>, StoreError> {
        // A request that ended before the first look may be back in its queue before the second, so there are two
        // rounds.
        for _ in 0..2 {
            let look = |state: &State, now| (in_memory(state), state.retention(now));
            let (found, retention) = self.shared.read(look).await?;
            if found.is_some() {
                return Ok(found);
            }
            match self.shared.load(move |archive| archive.by_id(id)).await? {
                Some(found) if found.is_kept(retention) => return Ok(Some(stored(found))),
                Some(found) if found.ended().is_none() => {}
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Reads something of the response of a request. Returns `None` if the request is unknown or has no response.
    async fn read_response<T: Send + 'static>(
        &self,
        id: RequestId,
        read: impl FnOnce(Archive<'_>, (u32, u64)) -> Result<Option<T>, StoreError> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let look = |state: &State, now| (state.get(id), state.place(id), state.retention(now));
        let (info, place, retention) = self.shared.read(look).await?;
        // A request that still waits or runs has no response yet.
        if info.is_some_and(|info| info.response_status.is_none()) {
            return Ok(None);
        }
        let load = self.shared.load(move |archive| {
            let place = match place {
                Some(place) => Some(place),
                None => {
                    let stored = archive.by_id(id)?;
                    let stored = stored.filter(|stored| stored.is_kept(retention));
                    let stored = stored.filter(|stored| stored.has_response());
                    stored.map(|stored| stored.place())
                }
            };
            match place {
                Some(place) => read(archive, place),
                None => Ok(None),
            }
        });
        load.await
    }

    async fn list_page(&self, listing: Listing) -> Result<Page, StoreError> {
        let Listing {
            status,
            tenant,
            limit,
            after,
            ..
        } = listing;
        let before = match after {
            None => Some(u64::MAX),
            Some(id) => {
                let place = self.find(id, |state| state.place(id), |stored| stored.place());
                place.await?.map(|(_, seq)| seq)
            }
        };
        let Some(before) = before else {
            return Ok(Page::default());
        };
        if let Some(status) = status
            && !status.has_ended()
        {
            let list = |state: &State, _| state.list(status, tenant.as_deref(), limit, before);
            return self.shared.read(list).await;
        }
        let part = Part {
            tenant,
            ended: status,
            limit,
            before,
            retention: self.shared.read(State::retention).await?,
        };
        let page = self.shared.load(move |archive| archive.list(&part));
        let mut page = page.await?;
        if status.is_none() {
            // The call of the inner service is recorded in memory only, so live requests are read from the state.
            let present = |state: &State, _| {
                let requests = page.requests.iter();
                requests.map(|info| state.get(info.id)).collect::<Vec<_>>()
            };
            let present = self.shared.read(present).await?;
            for (info, present) in page.requests.iter_mut().zip(present) {
                if let Some(present) = present {
                    *info = present;
                }
            }
        }
        Ok(page)
    }
}

/// Requests that were taken for a worker. Requests that the worker does not receive are given back on drop.
struct Taken {
    shared: Arc<Shared>,
    started: Vec<Started>,
}

impl Taken {
    /// Reads the bodies from the archive.
    async fn load(mut self) -> Result<Vec<Fetched>, StoreError> {
        if self.started.is_empty() {
            return Ok(Vec::new());
        }
        let places: Vec<_> = self.started.iter().map(|started| started.place).collect();
        let bodies = self.shared.load(move |archive| {
            let places = places.into_iter();
            let bodies = places.map(|(segment, seq)| archive.body(segment, seq));
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
        // A closed store has already given the requests back, so a failure here is harmless.
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
