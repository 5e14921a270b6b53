//! Connections are cut, scripts are forgotten, Redis is killed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::time::sleep;
use tower_triage::durable::{RequestStatus, StoreError, StoreFuture};

use super::proxy::Proxy;
use super::*;

fn through(proxy: &Proxy, config: StoreConfig) -> Arc<RedisStore> {
    let config = RedisConfig::new(proxy.url()).store(config);
    Arc::new(RedisStore::connect(config).unwrap())
}

/// Does it again until Redis is there.
async fn until_done<'a, T>(mut ask: impl FnMut() -> StoreFuture<'a, T>) -> T {
    loop {
        match ask().await {
            Ok(done) => return done,
            Err(StoreError::Unavailable(_)) => sleep(Duration::from_millis(10)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

type Runs = Arc<Mutex<HashMap<RequestId, u32>>>;

/// Takes and runs requests until it is dropped.
async fn work(store: Arc<RedisStore>, runs: Runs) {
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

async fn ended_statuses(store: &RedisStore, ids: &[RequestId]) -> HashMap<RequestStatus, usize> {
    let mut statuses = HashMap::new();
    for id in ids {
        soon(until_done(|| store.ended(*id))).await;
        let info = until_done(|| store.get(*id)).await.unwrap();
        *statuses.entry(info.status).or_default() += 1;
    }
    statuses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_request_ends_through_random_faults() {
    let mut server = Server::start();
    let port = server.port;
    let config = || StoreConfig::default().lease(Duration::from_secs(20));
    let proxies = [
        Proxy::to(port).await,
        Proxy::to(port).await,
        Proxy::to(port).await,
    ];
    let fronts = [
        through(&proxies[0], config()),
        through(&proxies[1], config()),
    ];
    let runs = Runs::default();
    let workers: Vec<_> = [1, 2]
        .map(|proxy: usize| {
            let store = through(&proxies[proxy], config());
            tokio::spawn(work(store, Arc::clone(&runs)))
        })
        .into();
    let callers: Vec<_> = fronts
        .iter()
        .map(|front| {
            let front = Arc::clone(front);
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for _ in 0..300 {
                    let request = request("");
                    ids.push(request.id);
                    until_done(|| front.enqueue(request.clone())).await;
                    sleep(Duration::from_millis(5)).await;
                }
                ids
            })
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(7);
    for fault in 0..80 {
        sleep(Duration::from_millis(random.u64(5..40))).await;
        let proxy = &proxies[random.usize(0..3)];
        match fault % 8 {
            0 | 3 | 6 => {
                proxy.swallow_replies();
                sleep(Duration::from_millis(20)).await;
                proxy.cut();
            }
            1 | 4 => {
                server.ask("SCRIPT FLUSH").unwrap();
            }
            5 if fault % 20 == 5 => {
                server.kill();
                sleep(Duration::from_millis(100)).await;
                server.run();
            }
            _ => proxy.cut(),
        }
    }
    let mut ids = Vec::new();
    for caller in callers {
        ids.extend(soon(caller).await.unwrap());
    }
    let statuses = ended_statuses(&fronts[0], &ids).await;
    assert_eq!(statuses, HashMap::from([(RequestStatus::Succeeded, 600)]));
    let runs = std::mem::take(&mut *runs.lock().unwrap());
    assert_eq!(runs.len(), 600);
    assert!(runs.values().all(|runs| *runs == 1), "one ran twice");
    for worker in workers {
        worker.abort();
    }
    assert!(fronts[0].depths().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_waiting_caller_learns_of_an_end_that_was_told_to_no_one() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let (front, worker) = (through(&proxy, short()), open(&server, short()));
    let id = store_one(&front, "").await;
    let ended = front.ended(id);
    let (began, ()) = tokio::join!(
        async {
            soon(ended).await.unwrap();
            Instant::now()
        },
        async {
            let fetched = take(&worker).await;
            sleep(Duration::from_millis(100)).await;
            proxy.swallow_replies();
            worker
                .finish(fetched.lease, responded(200, ""))
                .await
                .unwrap();
            sleep(Duration::from_millis(100)).await;
            proxy.cut();
        }
    );
    assert!(began.elapsed() < SOON);
    let info = front.get(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Succeeded);
}

#[tokio::test]
async fn a_fetch_whose_reply_was_lost_is_given_back() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let store = through(&proxy, short());
    // Redis knows the script from now on.
    assert!(store.fetch("", 1).await.unwrap().is_empty());
    let id = store_one(&store, "").await;
    proxy.swallow_replies();
    let lost = tokio::time::timeout(Duration::from_millis(200), store.fetch("", 1)).await;
    assert!(lost.is_err(), "the reply came");
    let watcher = open(&server, short());
    let info = watcher.get(id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Starting);
    proxy.cut();
    let fetched = take(&store).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 1));
    assert!(
        store
            .finish(fetched.lease, responded(200, ""))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn an_outage_is_an_error_that_names_host_and_port_only() {
    let mut server = Server::with(&["--appendonly", "yes", "--requirepass", "s3cret"]);
    let url = format!("redis://:s3cret@127.0.0.1:{}", server.port);
    let store = RedisStore::connect(RedisConfig::new(url).store(short())).unwrap();
    let id = store_one(&store, "").await;
    server.kill();
    let error = soon(async {
        loop {
            if let Err(error) = store.get(id).await {
                return error;
            }
        }
    })
    .await;
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let text = format!("{error} {store:?}");
    assert!(
        text.contains(&format!("127.0.0.1:{}", server.port)),
        "{text}"
    );
    assert!(!text.contains("s3cret"), "{text}");
    server.run();
    let info = soon(until_done(|| store.get(id))).await;
    assert_eq!(info.unwrap().status, RequestStatus::Queued);
    let fetched = take(&store).await;
    assert_eq!(fetched.lease.id(), id);
}

#[tokio::test]
async fn a_store_opens_before_its_redis_is_there() {
    let mut server = Server::start();
    server.kill();
    let store = open(&server, short());
    let error = store.enqueue(request("")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    server.run();
    let request = request("");
    let id = request.id;
    soon(until_done(|| store.enqueue(request.clone()))).await;
    assert_eq!(take(&store).await.lease.id(), id);
}

#[tokio::test]
async fn a_full_redis_refuses_requests_and_records_outcomes() {
    let server = Server::start();
    let store = open(&server, short());
    let id = store_one(&store, "first").await;
    let fetched = take(&store).await;
    server.ask("CONFIG SET maxmemory 1").unwrap();
    let error = store.enqueue(request("")).await.unwrap_err();
    assert!(matches!(error, StoreError::StorageFull(_)), "{error:?}");
    let outcome = responded(200, "done");
    assert!(store.finish(fetched.lease, outcome).await.unwrap());
    assert_eq!(store.response(id).await.unwrap().unwrap(), "done");
    server.ask("CONFIG SET maxmemory 0").unwrap();
    store_one(&store, "second").await;
}

#[tokio::test]
async fn a_dropped_fetch_takes_nothing() {
    let server = Server::start();
    let store = open(&server, short());
    let id = store_one(&store, "").await;
    for polls in 0..40 {
        let while_it_is_polled = async {
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            fetched = store.fetch("", 1) => {
                for fetched in fetched.unwrap() {
                    let outcome = Outcome::Retry { after: Duration::ZERO, counts: false };
                    store.finish(fetched.lease, outcome).await.unwrap();
                }
            }
            () = while_it_is_polled => {}
        }
    }
    let fetched = take(&store).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 1));
}
