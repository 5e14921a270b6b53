//! A Redis that takes the place of another one.

use tower_triage_durable::{DrainStore, Idempotency};

use super::*;

async fn long(server: &Server) -> Arc<RedisStore> {
    let config = StoreConfig::default().lease(Duration::from_secs(20));
    Arc::new(open(server, config).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_redis_can_be_taken_away() {
    let (mut old_server, new_server) = (Server::start(), Server::start());
    let old = long(&old_server).await;
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(store_one(&*old, "").await);
    }
    let of_both = async || {
        let (new, old) = (long(&new_server).await, long(&old_server).await);
        Arc::new(DrainStore::new(new, old))
    };
    let (front, worker) = (of_both().await, of_both().await);
    assert_eq!(front.remaining().await.unwrap(), 40);
    let runs = Runs::default();
    // An old process still runs beside the new one.
    let workers = [
        tokio::spawn(work(old, Arc::clone(&runs))),
        tokio::spawn(work(worker, Arc::clone(&runs))),
    ];
    for _ in 0..40 {
        ids.push(store_one(&*front, "").await);
    }
    let statuses = ended_statuses(&*front, &ids).await;
    assert_eq!(statuses, HashMap::from([(RequestStatus::Succeeded, 80)]));
    let once = runs
        .lock()
        .unwrap()
        .values()
        .filter(|runs| **runs == 1)
        .count();
    assert_eq!(once, 80);
    assert_eq!(front.remaining().await.unwrap(), 0);

    old_server.kill();
    let mut later = Vec::new();
    for _ in 0..10 {
        later.push(store_one(&*front, "").await);
    }
    let statuses = ended_statuses(&*front, &later).await;
    assert_eq!(statuses, HashMap::from([(RequestStatus::Succeeded, 10)]));
    let error = front.get(ids[0]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    // The old one may have a request of this key.
    let mut keyed = request("");
    keyed.idempotency = Some(Idempotency {
        key: "k".to_owned(),
        fingerprint: [0; 32],
    });
    let error = front.enqueue(keyed).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    for worker in workers {
        worker.abort();
    }
}
