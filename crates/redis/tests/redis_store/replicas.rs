//! Requests that are acknowledged when a replica has them.

use tower_triage_durable::{Enqueued, RequestStatus, StoreError};

use super::*;

#[tokio::test]
async fn a_request_is_acknowledged_when_replicas_have_it() {
    let server = Server::start();
    let port = server.port.to_string();
    let replica = || Server::with(&["--replicaof", "127.0.0.1", &port]);
    let first = replica();
    let connect = |within| {
        let config = RedisConfig::new(server.url()).store(short());
        RedisStore::connect(config.replicas(1, within)).unwrap()
    };
    let store = connect(Duration::from_secs(30));
    let is_synchronous = async |server: &Server| {
        soon(async {
            while !server
                .ask("INFO replication")
                .unwrap()
                .contains("state=online")
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    };
    is_synchronous(&server).await;
    let all = (0..50).map(|_| store_one(&store, ""));
    for stored in futures_util::future::join_all(all).await {
        let info = store.get(stored).await.unwrap().unwrap();
        assert_eq!(info.status, RequestStatus::Queued);
    }

    drop(first);
    let request = request("");
    let within = Duration::from_millis(200);
    let hasty = connect(within);
    let error = hasty.enqueue(request.clone()).await.unwrap_err();
    assert_eq!(error, StoreError::NotReplicated { wanted: 1, within });
    // It is stored all the same, and not acknowledged before a replica has it.
    assert!(store.get(request.id).await.unwrap().is_some());
    hasty.enqueue(request.clone()).await.unwrap_err();
    let _second = replica();
    is_synchronous(&server).await;
    let again = store.enqueue(request).await.unwrap();
    assert!(matches!(again, Enqueued::Known(_)));
}
