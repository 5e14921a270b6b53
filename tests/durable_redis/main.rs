//! The store on a real Redis, which is killed, flushed and cut off.

mod faults;
mod own;
mod processes;
mod proxy;
mod replicas;
#[path = "../support/redis_server.rs"]
mod server;

use std::time::Duration;

use bytes::Bytes;
use tower_triage::durable::{
    Fetched, NewRequest, Outcome, RedisConfig, RedisStore, RequestId, Store, StoreConfig,
};

use server::Server;

/// Long enough for what has to happen.
const SOON: Duration = Duration::from_secs(30);

fn open(server: &Server, config: StoreConfig) -> RedisStore {
    RedisStore::connect(RedisConfig::new(server.url()).store(config)).unwrap()
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

async fn store_one(store: &RedisStore, body: &str) -> RequestId {
    let request = request(body);
    let id = request.id;
    store.enqueue(request).await.unwrap();
    id
}

/// Takes the next request, as soon as there is one.
async fn take(store: &RedisStore) -> Fetched {
    let taken = async {
        loop {
            let backlog = store.backlog().await.unwrap();
            if let Some(fetched) = store.fetch("", 1).await.unwrap().pop() {
                return fetched;
            }
            store.changed(backlog.version).await.unwrap();
        }
    };
    tokio::time::timeout(SOON, taken).await.expect("a request")
}

/// Waits for the end of what has to happen soon.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("soon")
}
