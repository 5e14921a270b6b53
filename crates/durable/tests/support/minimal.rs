//! A store with what it has to have and nothing else, whose waits are the defaults.

use bytes::Bytes;
use tower_triage_durable::{
    Backlog, Enqueued, Fetched, Lease, NewRequest, Outcome, RequestId, RequestInfo, Store,
    StoreFuture,
};
use tower_triage_embedded::EmbeddedStore;

/// A store in memory with what a store has to have and nothing else.
pub(crate) struct Minimal(pub(crate) EmbeddedStore);

impl Store for Minimal {
    fn enqueue(&self, request: NewRequest) -> StoreFuture<'_, Enqueued> {
        self.0.enqueue(request)
    }

    fn get(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        self.0.get(id)
    }

    fn response(&self, id: RequestId) -> StoreFuture<'_, Option<Bytes>> {
        self.0.response(id)
    }

    fn cancel(&self, id: RequestId) -> StoreFuture<'_, Option<RequestInfo>> {
        self.0.cancel(id)
    }

    fn backlog(&self) -> StoreFuture<'_, Backlog> {
        self.0.backlog()
    }

    fn fetch(&self, queue: &str, max: usize) -> StoreFuture<'_, Vec<Fetched>> {
        self.0.fetch(queue, max)
    }

    fn called(&self, lease: &Lease) -> StoreFuture<'_, ()> {
        self.0.called(lease)
    }

    fn finish(&self, lease: Lease, outcome: Outcome) -> StoreFuture<'_, bool> {
        self.0.finish(lease, outcome)
    }
}
