//! The store on a real Redis, and in a cluster.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio::time::sleep;
use tower_triage_durable::{RequestId, Store, StoreConfig};
use tower_triage_redis::{RedisConfig, RedisStore};

use crate::redis_cluster::Cluster;
use crate::redis_server::Server;
use crate::{soon, until_done};
use tower_triage_durable::conformance::Harness;

/// Waits until Redis has answered a store.
async fn has_answered(store: &dyn Store) {
    soon(until_done(|| store.backlog())).await;
}

struct OnRedis {
    server: Server,
    config: StoreConfig,
    store: Option<Arc<RedisStore>>,
}

impl OnRedis {
    fn connect(&mut self) {
        let config = RedisConfig::new(self.server.url()).store(self.config.clone());
        self.store = Some(Arc::new(RedisStore::connect(config).unwrap()));
    }
}

impl Harness for OnRedis {
    const UNIT: Duration = Duration::from_secs(1);
    const IS_EXACT: bool = true;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    async fn open(config: StoreConfig) -> Self {
        let mut harness = Self {
            server: Server::start(),
            config: config.lease(Duration::from_millis(900)),
            store: None,
        };
        harness.connect();
        has_answered(&*harness.store()).await;
        harness
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(self.store.as_ref().unwrap()) as Arc<dyn Store>
    }

    async fn crash(&mut self) {
        let store = self.store.take().unwrap();
        let Some(store) = Arc::into_inner(store) else {
            panic!("the test still has the store of the process that is to die");
        };
        // Its tasks end without a word.
        drop(store);
        self.server.kill();
        self.server.run();
        self.connect();
        let store = self.store();
        has_answered(&*store).await;
        while store
            .depths()
            .await
            .unwrap()
            .iter()
            .any(|depth| depth.running > 0)
        {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

tower_triage_durable::conformance!(OnRedis: streams, operate, webhooks, key_values, drain, stored_bytes, crashes);

/// A store with a name, and so a slot, of its own in a cluster.
struct InCluster(Arc<RedisStore>);

thread_local! {
    /// The cluster of all stores of this thread, which ends with the thread.
    static CLUSTER: Rc<OnceCell<Cluster>> = Rc::default();
}

impl Harness for InCluster {
    const UNIT: Duration = Duration::from_secs(1);
    const IS_EXACT: bool = true;

    fn runtime() -> Runtime {
        OnRedis::runtime()
    }

    async fn open(config: StoreConfig) -> Self {
        let cluster = CLUSTER.with(Rc::clone);
        let cluster = cluster.get_or_init(|| Cluster::start(3, 0)).await;
        let config = RedisConfig::new(cluster.url())
            .queue(RequestId::random().unwrap().to_string())
            .store(config.lease(Duration::from_millis(900)));
        let store = RedisStore::connect(config).unwrap();
        has_answered(&store).await;
        Self(Arc::new(store))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0) as Arc<dyn Store>
    }

    async fn crash(&mut self) {
        unreachable!("no promise about a crash is checked in a cluster");
    }
}

mod cluster {
    use super::InCluster;

    tower_triage_durable::conformance!(InCluster: streams, operate, webhooks, key_values, drain, stored_bytes; at_once all_promises_hold_in_a_cluster);
}
