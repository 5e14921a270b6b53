//! A store with what it has to have and nothing else, whose waits are the defaults.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tower_triage_durable::conformance::Harness;
use tower_triage_durable::{
    Backlog, Enqueued, Fetched, Lease, NewRequest, Outcome, RequestId, RequestInfo, Store,
    StoreConfig, StoreFuture,
};
use tower_triage_embedded::EmbeddedStore;

struct Minimal(EmbeddedStore);

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

struct InMemory(Arc<Minimal>);

impl Harness for InMemory {
    const UNIT: Duration = Duration::from_secs(1);
    const IS_EXACT: bool = true;

    fn runtime() -> Runtime {
        let mut runtime = Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap()
    }

    async fn open(config: StoreConfig) -> Self {
        Self(Arc::new(Minimal(EmbeddedStore::in_memory(config).unwrap())))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0) as Arc<dyn Store>
    }

    async fn crash(&mut self) {
        unreachable!("it does not survive its process")
    }
}

tower_triage_durable::conformance!(InMemory);
