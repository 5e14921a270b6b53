//! The promises of a store, held by the least that a store can have.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tower_triage_durable::conformance::Harness;
use tower_triage_durable::{Store, StoreConfig};
use tower_triage_embedded::EmbeddedStore;

use crate::minimal_store::Minimal;

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
