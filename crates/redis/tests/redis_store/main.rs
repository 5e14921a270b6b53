//! The store on a real Redis, which is killed, flushed and cut off.

mod checker;
mod cluster;
mod conformance;
mod direct;
mod drain;
mod failover;
mod faults;
mod outages;
mod own;
mod processes;
mod proxy;
#[path = "../support/redis_cluster.rs"]
mod redis_cluster;
#[path = "../support/redis_server.rs"]
mod redis_server;
mod replicas;
#[cfg(feature = "tls")]
mod tls;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;
use tower_triage_durable::{
    Fetched, NewRequest, Outcome, RequestId, RequestStatus, Store, StoreConfig, StoreError,
    StoreFuture,
};
use tower_triage_redis::{RedisConfig, RedisStore};

use redis_server::Server;

/// Long enough for what has to happen.
const SOON: Duration = Duration::from_secs(60);

fn connect(server: &Server, config: StoreConfig) -> RedisStore {
    RedisStore::connect(RedisConfig::new(server.url()).store(config)).unwrap()
}

/// Opens a store, and waits until Redis has answered it.
async fn open(server: &Server, config: StoreConfig) -> RedisStore {
    let store = connect(server, config);
    soon(until_done(|| store.backlog())).await;
    store
}

/// A configuration with a lease so short that a test sees its end.
fn short() -> StoreConfig {
    StoreConfig::default().lease(Duration::from_millis(900))
}

fn request(body: &str) -> NewRequest {
    NewRequest::new(
        RequestId::random().unwrap(),
        Bytes::copy_from_slice(body.as_bytes()),
    )
}

fn responded(status: u16, body: &'static str) -> Outcome {
    Outcome::Responded {
        status,
        response: Bytes::from_static(body.as_bytes()),
    }
}

async fn store_one(store: &dyn Store, body: &str) -> RequestId {
    let request = request(body);
    let id = request.id;
    until_done(|| store.enqueue(request.clone())).await;
    id
}

/// Takes the next request, as soon as there is one.
async fn take(store: &RedisStore) -> Fetched {
    let taken = async {
        loop {
            let backlog = until_done(|| store.backlog()).await;
            if let Some(fetched) = until_done(|| store.fetch("", 1)).await.pop() {
                return fetched;
            }
            until_done(|| store.changed(backlog.version)).await;
        }
    };
    tokio::time::timeout(SOON, taken).await.expect("a request")
}

/// Waits for the end of what has to happen soon.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("soon")
}

/// Does it again until Redis, and its replicas, have done it.
async fn until_done<'a, T>(mut ask: impl FnMut() -> StoreFuture<'a, T>) -> T {
    loop {
        match ask().await {
            Ok(done) => return done,
            Err(StoreError::Unavailable(_) | StoreError::NotReplicated { .. }) => {
                sleep(Duration::from_millis(10)).await
            }
            Err(error) => panic!("{error}"),
        }
    }
}

type Runs = Arc<Mutex<HashMap<RequestId, u32>>>;

/// Takes and runs requests until it is dropped.
async fn work(store: Arc<dyn Store>, runs: Runs) {
    loop {
        let Ok(backlog) = store.backlog().await else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        for fetched in store.fetch("", 4).await.unwrap_or_default() {
            until_done(|| store.called(&fetched.lease)).await;
            *runs.lock().unwrap().entry(fetched.lease.id()).or_default() += 1;
            sleep(Duration::from_millis(5)).await;
            until_done(|| store.finish(fetched.lease.clone(), responded(200, "done"))).await;
        }
        // With a pause, so that a worker whose news are late goes on.
        let _ =
            tokio::time::timeout(Duration::from_millis(200), store.changed(backlog.version)).await;
    }
}

async fn ended_statuses(store: &dyn Store, ids: &[RequestId]) -> HashMap<RequestStatus, usize> {
    let mut statuses = HashMap::new();
    for id in ids {
        soon(until_done(|| store.ended(*id))).await;
        let info = until_done(|| store.get(*id)).await.unwrap();
        *statuses.entry(info.status).or_default() += 1;
    }
    statuses
}
