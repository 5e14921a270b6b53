//! The interface of all stores, which fronts and workers use.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Weak;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::time::sleep;

use super::{
    Drain, Fetched, KeyValues, Lease, NewRequest, Operate, Outcome, RequestId, RequestInfo, Stop,
    StoreError, Streams, Webhooks,
};

/// The future of an operation of a [`Store`].
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A store of requests, their outcomes and their order, which also notifies fronts and workers of changes.
///
/// Any operation may be repeated, and its future may be dropped at any time. The operation has then happened either
/// completely or not at all. After an operation has returned `Ok`, its effect is stored. Each request ends exactly
/// once, because the store keeps only the first outcome, cancellation or deadline that is recorded for it.
///
/// A store has to have the eight operations without a default. The waits have defaults that [poll](Self::poll_interval), which
/// are right and slow; a store with notifications overrides them. What a store can do beside is in traits of its own:
/// [`Streams`], [`Operate`], [`Webhooks`], [`KeyValues`] and [`Drain`]. A store that has one returns it from the method of that
/// name. Their operations are also methods of `dyn Store`, and return [`StoreError::Unsupported`] if the store lacks them.
///
/// An open store maintains itself. It renews the leases that it has granted, takes leases from silent workers, and ends
/// requests at their deadlines. It also forgets requests that ended longer ago than the
/// [retention](super::StoreConfig::retention).
pub trait Store: Send + Sync + 'static {
    /// Stores a request and returns its description.
    ///
    /// If the store already has a request with the same identifier, or with the same idempotency key and fingerprint,
    /// it returns that one unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error if the store is full, if another request has the idempotency key, or if the write fails.
    fn enqueue(&self, request: NewRequest) -> StoreFuture<'_, Enqueued>;

    /// Registers a worker of this process, until that is dropped.
    ///
    /// If the worker has a free place and no other request of the queue waits, the store may let a new request begin in
    /// the same step in which it is stored. The default does nothing, so each request is [fetched](Self::fetch).
    fn register_worker(&self, _worker: Weak<dyn IdleWorker>) {}

    /// Returns the description of a request, or `None` if it is unknown or forgotten.
    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>>;

    /// Returns the response of a request, in the form in which its worker stored it.
    fn response(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>>;

    /// Returns a part of a response: at most `max` bytes, beginning at byte `offset`, of the form in which its worker
    /// stored it. A part has fewer bytes only at the end of the response or of what the store reads at a time.
    ///
    /// The front reads long responses with it as fast as its client takes them. The default reads the whole response.
    fn response_part(
        &self,
        id: RequestId,
        offset: u64,
        max: usize,
    ) -> StoreFuture<'_, Option<ResponsePart>> {
        let response = self.response(id);
        Box::pin(async move {
            let response = response.await?;
            Ok(response.map(|response| ResponsePart::of(&response, offset, max)))
        })
    }

    /// Waits until a request has ended or turns out to be unknown.
    ///
    /// The store returns the request if it has it at hand. After `None`, the caller [reads](Self::get) the request
    /// instead. A caller that stores a request may begin this wait before. The store can then keep the request at hand,
    /// which spares another read.
    fn ended(&self, id: RequestId) -> StoreFuture<'_, Option<Found>> {
        Box::pin(async move {
            loop {
                match self.get(id).await? {
                    Some(info) if !info.status.has_ended() => sleep(self.poll_interval()).await,
                    found => return Ok(found.map(Found::from)),
                }
            }
        })
    }

    /// Cancels a request that has not ended, and returns its state after that, or `None` if it is unknown.
    fn cancel(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>>;

    /// Returns the head of each queue that has a request which may begin.
    fn backlog(&self) -> StoreFuture<'_, Backlog>;

    /// Waits until the backlog may have changed since the given [`Backlog::version`], and returns the change.
    fn changed(&self, version: u64) -> StoreFuture<'_, BacklogChange> {
        _ = version;
        Box::pin(async move {
            sleep(self.poll_interval()).await;
            Ok(BacklogChange::Any)
        })
    }

    /// Takes up to `max` requests that may begin from a queue, the most urgent first, for a worker that runs them at
    /// once.
    fn fetch(&self, queue: &str, max: usize) -> StoreFuture<'_, Vec<Fetched>>;

    /// Records that the worker has called the inner service.
    fn called(&self, lease: &Lease) -> StoreFuture<'_, ()>;

    /// Waits until the attempt has to stop, and returns the reason.
    fn stopped(&self, lease: &Lease) -> StoreFuture<'_, Stop> {
        let lease = lease.clone();
        Box::pin(async move {
            loop {
                match self.get(lease.id()).await? {
                    Some(info) if info.status.is_withdrawn() => return Ok(Stop::Canceled),
                    Some(info) if info.attempts == lease.attempt() && info.status.is_running() => {
                        sleep(self.poll_interval()).await;
                    }
                    _ => return Ok(Stop::Lost),
                }
            }
        })
    }

    /// Returns the time between two looks of the waits that a store does not override. The default is 250 ms.
    fn poll_interval(&self) -> Duration {
        Duration::from_millis(250)
    }

    /// Records the outcome of an attempt.
    ///
    /// Returns `false` if the outcome is ignored, because the lease was taken away or the request had ended before.
    fn finish(&self, lease: Lease, outcome: Outcome) -> StoreFuture<'_, bool>;

    /// Returns the bytes that requests of a tenant and their responses take, which have not been forgotten. A store may
    /// underestimate them. The default returns 0.
    fn stored_bytes(&self, tenant: &[u8]) -> StoreFuture<'_, u64> {
        _ = tenant;
        Box::pin(ready(Ok(0)))
    }

    /// Returns the bytes that the store has left for new data, or `None` if it does not know. The default returns `None`.
    fn free_bytes(&self) -> StoreFuture<'_, Option<u64>> {
        Box::pin(ready(Ok(None)))
    }

    /// Returns the time of the store's clock. Components on top of a store measure with it what has to last across
    /// restarts, such as the age of a file. The clock of a store may go on when the system's clock is set. The default is
    /// the system's clock.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Converts a time of the [store's clock](Self::now) into one of the system's clock, for people to read. The default
    /// returns the same time.
    fn system_time(&self, time: SystemTime) -> SystemTime {
        time
    }

    /// Closes the store, which then stops maintaining itself.
    ///
    /// Requests that a worker has taken without calling the inner service go back into their queues. Other operations
    /// must not follow. The default does nothing.
    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(ready(Ok(())))
    }

    /// Returns the streams of responses, if the store has them. The default has none.
    fn streams(&self) -> Option<&dyn Streams> {
        None
    }

    /// Returns the operations for operators, if the store has them. The default has none.
    fn operate(&self) -> Option<&dyn Operate> {
        None
    }

    /// Returns the webhooks of requests, if the store has them. The default has none.
    fn webhooks(&self) -> Option<&dyn Webhooks> {
        None
    }

    /// Returns the values under keys, if the store has them. The default has none.
    fn key_values(&self) -> Option<&dyn KeyValues> {
        None
    }

    /// Returns what another store needs that takes the place of this one, if the store has it. The default has none.
    fn drain(&self) -> Option<&dyn Drain> {
        None
    }
}

/// A worker as a [`Store`] sees it, while it stores a request: a source of free places.
pub trait IdleWorker: Send + Sync {
    /// Returns a place for a request of this queue, or `None` if the request would have to wait for a slot.
    fn try_place(&self, queue: &str) -> Option<FreePlace>;
}

/// A place for one request, which runs in it as soon as the function is called. Dropping the function frees the place.
pub type FreePlace = Box<dyn FnOnce(Fetched) + Send>;

/// A request as a store returns it, with the response if that is at hand.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The description of the request.
    pub info: RequestInfo,
    /// The encoded response. With `None`, the request has ended without one or the response has to be
    /// [read](Store::response) separately.
    pub response: Option<Bytes>,
}

impl From<RequestInfo> for Found {
    fn from(info: RequestInfo) -> Self {
        let response = None;
        Self { info, response }
    }
}

/// The result of [`Store::enqueue`], which tells a new request from a repetition.
#[derive(Debug, Clone, PartialEq)]
pub enum Enqueued {
    /// The store has accepted the request as a new one.
    New(RequestInfo),
    /// The store had the request before, so it stored nothing now.
    Known(RequestInfo),
}

impl Enqueued {
    /// Returns the description of the stored request.
    #[must_use]
    pub fn info(&self) -> &RequestInfo {
        match self {
            Self::New(info) | Self::Known(info) => info,
        }
    }
}

/// A snapshot of the queues that have a request which may begin.
#[derive(Debug, Clone, Default)]
pub struct Backlog {
    /// The number of changes that this snapshot includes, as this process counts them. Pass it to [`Store::changed`].
    pub version: u64,
    /// The heads of the queues, in an arbitrary order.
    pub queues: Vec<QueueHead>,
    /// The earliest time at which a delayed request may begin.
    pub next: Option<SystemTime>,
}

/// A change of the [`Backlog`], as [`Store::changed`] returns it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BacklogChange {
    /// The backlog may have changed in any way, so the worker has to [read](Store::backlog) it again.
    Any,
    /// A queue without startable requests has got this one. Everything else is as it was in the version before.
    NewHead {
        /// The version of the backlog that includes this change.
        version: u64,
        /// The new head of the queue.
        head: Box<QueueHead>,
    },
}

/// The most urgent request of a queue that may begin.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QueueHead {
    /// The description of the request, with the name of its queue.
    pub info: RequestInfo,
    /// The part of the tenant's share that the request uses, in units of the user's choice.
    pub cost: u32,
    /// The number of requests of this queue that may begin, at least 1. A store may underestimate it.
    pub runnable: u64,
}

impl QueueHead {
    /// Returns the head of a queue that has one request, with a cost of 1.
    #[must_use]
    pub fn new(info: RequestInfo) -> Self {
        Self {
            info,
            cost: 1,
            runnable: 1,
        }
    }
}

/// A piece of a response that is still in progress, such as one event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The number of this piece, where the first piece of a response is 1.
    pub number: u64,
    /// The bytes of the piece.
    pub data: Bytes,
}

/// A part of the stored form of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponsePart {
    /// The bytes of the part.
    pub data: Bytes,
    /// The number of bytes of the whole response.
    pub length: u64,
}

impl ResponsePart {
    /// Copies at most `max` bytes of a whole response, beginning at byte `offset`, so that the rest can be freed.
    #[must_use]
    pub fn of(response: &[u8], offset: u64, max: usize) -> Self {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = response.get(from..).unwrap_or_default();
        Self {
            data: Bytes::copy_from_slice(&rest[..rest.len().min(max)]),
            length: response.len() as u64,
        }
    }
}

/// The pieces of a response that follow a given number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunks {
    /// The pieces in the order of their numbers.
    pub chunks: Vec<Chunk>,
    /// `true` if the store has dropped pieces between the given number and the first of these.
    pub has_gap: bool,
    /// `true` if the response ends with these pieces. `false` while more pieces follow or may come.
    pub is_end: bool,
}

/// A pause, during which workers can't take the requests of its scope.
#[derive(Debug, Clone, PartialEq)]
pub struct Pause {
    /// The requests that the pause affects.
    pub scope: PauseScope,
    /// The reason that the operator gave for the pause.
    pub reason: String,
    /// The time at which the pause ends by itself, or `None` for a pause that lasts until it is resumed.
    pub until: Option<SystemTime>,
}

/// The requests that a pause affects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PauseScope {
    /// All requests of the store.
    All,
    /// The requests of the queue with this name.
    Queue(String),
    /// The requests of this tenant.
    Tenant(Vec<u8>),
}

/// A webhook that has to be sent, because its request has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct DueWebhook {
    /// The description of the request that has ended.
    pub info: RequestInfo,
    /// The address to which the webhook goes.
    pub url: String,
    /// The number of earlier tries to send this webhook.
    pub tries: u32,
    /// The number of times that the request was [retried](Operate::retry) after an end, with a webhook for each end.
    pub retries: u32,
}
