//! The trait of what keeps requests.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::{
    Fetched, Lease, Listing, NewRequest, Outcome, Page, QueueDepth, QueueTotal, RequestId,
    RequestInfo, Stop, StoreError,
};

/// An operation of a [`Store`].
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps requests, their outcomes and their order, and tells fronts and workers what has changed.
///
/// All operations may be repeated, and their futures dropped at any time: the operation has then happened as a whole or not
/// at all. What was answered with `Ok` is stored. A request ends once: the first outcome, cancellation or deadline that is
/// recorded stands.
///
/// A store looks after itself while it is open: it renews the leases that it gave, takes those of silent workers away, ends
/// requests whose time is up, and forgets what has ended after its
/// [retention](super::StoreConfig::retention).
pub trait Store: Send + Sync + 'static {
    /// Stores a request. One of the same name, or of the same idempotency key and fingerprint, is returned as it is.
    ///
    /// # Errors
    ///
    /// If there is no place for it, its key belongs to another request, or it can't be stored.
    fn enqueue(&self, request: NewRequest) -> StoreFuture<'_, Enqueued>;

    /// Returns the stored request of the same name, or of the same idempotency key and fingerprint, without storing this one.
    ///
    /// # Errors
    ///
    /// If its key belongs to another request.
    fn known(&self, request: &NewRequest) -> StoreFuture<'_, Option<RequestInfo>>;

    /// Returns a request; `None` if it is not known, or was forgotten.
    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>>;

    /// Returns its position among those of its queue, while it waits: 1 is next.
    fn position(&self, id: RequestId) -> StoreFuture<'_, Option<u64>>;

    /// Returns the request itself as it was stored.
    fn request(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>>;

    /// Returns its response, if there is one.
    fn response(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>>;

    /// Resolves when a request has ended, or is not known. Returns it if the store has it at hand; otherwise it has to be
    /// [read](Self::get).
    ///
    /// A caller that stores a request and waits for its end may begin the wait first: then the store need not be asked for
    /// that again, and may have the request at hand.
    fn ended(&self, id: RequestId) -> StoreFuture<'_, Option<Found>>;

    /// Ends a request that has not ended, and returns it as it is then; `None` if it is not known.
    fn cancel(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>>;

    /// Puts a request that has failed back into its queue, and returns it as it is then: one of another status is left as it
    /// is. Its attempts count from 0 again, and its deadline is gone.
    fn retry(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>>;

    /// Returns listed requests.
    fn list(&self, listing: Listing) -> StoreFuture<'_, Page>;

    /// Returns the queues that have a request which may begin.
    fn backlog(&self) -> StoreFuture<'_, Backlog>;

    /// Resolves when the backlog may have changed since [`Backlog::version`].
    fn changed(&self, version: u64) -> StoreFuture<'_, BacklogChange>;

    /// Takes the most urgent requests of a queue that may begin, `max` at most, to be run at once.
    fn fetch(&self, queue: &str, max: usize) -> StoreFuture<'_, Vec<Fetched>>;

    /// Notes that the inner service was called.
    fn called(&self, lease: &Lease) -> StoreFuture<'_, ()>;

    /// Resolves when an attempt has to stop.
    fn stopped(&self, lease: &Lease) -> StoreFuture<'_, Stop>;

    /// Records the end of an attempt. Returns `false` if it has no effect, because the lease was taken away or the request
    /// had ended before.
    fn finish(&self, lease: Lease, outcome: Outcome) -> StoreFuture<'_, bool>;

    /// Adds a piece of the response while it is being made, for those that read it as a stream.
    fn append(&self, lease: &Lease, data: Bytes) -> StoreFuture<'_, ()>;

    /// Waits until there are pieces with numbers above `after`, or the request has ended, and returns them. The first
    /// piece has number 1. `None` if the request is not known.
    fn chunks(&self, id: RequestId, after: u64) -> StoreFuture<'_, Option<Chunks>>;

    /// Keeps requests from being taken. One of the same scope is replaced.
    fn pause(&self, pause: Pause) -> StoreFuture<'_, ()>;

    /// Ends a pause. Returns `false` if there was none.
    fn resume(&self, scope: PauseScope) -> StoreFuture<'_, bool>;

    /// Returns the pauses that hold.
    fn pauses(&self) -> StoreFuture<'_, Vec<Pause>>;

    /// Returns the depth of each level of each queue that is not empty.
    fn depths(&self) -> StoreFuture<'_, Vec<QueueDepth>>;

    /// Returns the totals of each queue: of this opening of a store for one process, else of all processes since the store
    /// was first used.
    fn totals(&self) -> StoreFuture<'_, Vec<QueueTotal>>;

    /// Takes webhooks that are due, `max` at most: they are due again a minute later, unless they are
    /// [settled](Self::settle_webhook) before.
    fn due_webhooks(&self, max: usize) -> StoreFuture<'_, Vec<DueWebhook>>;

    /// Settles a webhook for good, or until some time later.
    fn settle_webhook(&self, id: RequestId, again: Option<Duration>) -> StoreFuture<'_, ()>;

    /// Keeps a value under a key, for what is built on a store: files, batches. It replaces the one before.
    fn put(&self, key: &str, value: Bytes) -> StoreFuture<'_, ()>;

    /// Returns the value of a key.
    fn value(&self, key: &str) -> StoreFuture<'_, Option<Bytes>>;

    /// Forgets a key. Returns `false` if it was not there.
    fn remove(&self, key: &str) -> StoreFuture<'_, bool>;

    /// Returns the keys that begin with `prefix` and come after `after` in the order of their bytes, `max` at most, with
    /// their values.
    fn values(
        &self,
        prefix: &str,
        after: Option<&str>,
        max: usize,
    ) -> StoreFuture<'_, Vec<(String, Bytes)>>;

    /// Gives back what no worker runs, and stops looking after the store. No other operation may follow.
    fn close(&self) -> StoreFuture<'_, ()>;
}

/// A request as it is in the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The request.
    pub info: RequestInfo,
    /// Its response; `None` if there is none, or if it has to be [read](Store::response).
    pub response: Option<Bytes>,
}

impl From<RequestInfo> for Found {
    fn from(info: RequestInfo) -> Self {
        let response = None;
        Self { info, response }
    }
}

/// A request that was to be stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Enqueued {
    /// It is stored.
    New(RequestInfo),
    /// It was stored before.
    Known(RequestInfo),
}

impl Enqueued {
    /// Returns the stored request.
    #[must_use]
    pub fn info(&self) -> &RequestInfo {
        match self {
            Self::New(info) | Self::Known(info) => info,
        }
    }
}

/// The queues that have a request which may begin.
#[derive(Debug, Clone, Default)]
pub struct Backlog {
    /// The number of changes that it takes account of, as this process knows them; for [`Store::changed`].
    pub version: u64,
    /// The queues, in no particular order.
    pub queues: Vec<QueueHead>,
    /// The earliest time at which a request may begin that may not yet.
    pub next: Option<SystemTime>,
}

/// A change of the [`Backlog`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BacklogChange {
    /// It may have changed in any way, and has to be [read](Store::backlog) again.
    Any,
    /// A queue had no request that may begin, and has this one now. Nothing else has changed since the version before.
    NewHead {
        /// The version of the backlog with this change.
        version: u64,
        /// The head of the queue.
        head: Box<QueueHead>,
    },
}

/// A queue's most urgent request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct QueueHead {
    /// The request.
    pub info: RequestInfo,
    /// The part of its tenant's share that it uses.
    pub cost: u32,
    /// The number of requests of its queue that may begin; as far as it is known, and 1 at least.
    pub runnable: u64,
}

impl QueueHead {
    /// Returns the head of a queue with one request.
    #[must_use]
    pub fn new(info: RequestInfo) -> Self {
        Self {
            info,
            cost: 1,
            runnable: 1,
        }
    }
}

/// A piece of a response that is being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its number, from 1.
    pub number: u64,
    /// The piece.
    pub data: Bytes,
}

/// The pieces of a response after a given one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunks {
    /// The pieces, in their order.
    pub chunks: Vec<Chunk>,
    /// `true` if pieces before them are gone.
    pub has_gap: bool,
    /// `true` if none will follow them.
    pub is_end: bool,
}

/// A time in which requests are not taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Pause {
    /// The requests that it concerns.
    pub scope: PauseScope,
    /// The operator's reason.
    pub reason: String,
    /// The time at which it ends by itself.
    pub until: Option<SystemTime>,
}

/// The requests that a pause concerns.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PauseScope {
    /// All requests.
    All,
    /// Requests of one queue.
    Queue(String),
    /// Requests of one tenant.
    Tenant(Vec<u8>),
}

/// A request that has ended and whose webhook has to be told.
#[derive(Debug, Clone, PartialEq)]
pub struct DueWebhook {
    /// The request.
    pub info: RequestInfo,
    /// The address.
    pub url: String,
    /// The number of times that it was told before.
    pub tries: u32,
}
