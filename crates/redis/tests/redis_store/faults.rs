//! Connections are cut, scripts are forgotten, Redis is killed.

use std::time::Instant;

use super::proxy::Proxy;
use super::*;

fn through(proxy: &Proxy, config: StoreConfig) -> Arc<RedisStore> {
    let config = RedisConfig::new(proxy.url()).store(config);
    Arc::new(RedisStore::connect(config).unwrap())
}

#[tokio::test]
async fn a_waiting_caller_learns_of_an_end_that_was_told_to_no_one() {
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let (front, worker) = (through(&proxy, short()), open(&server, short()).await);
    let id = store_one(&*front, "").await;
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
    let id = store_one(&*store, "").await;
    proxy.swallow_replies();
    let watcher = open(&server, short()).await;
    let is_taken = async {
        while watcher.get(id).await.unwrap().unwrap().status != RequestStatus::Starting {
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        fetched = store.fetch("", 1) => panic!("the reply came: {fetched:?}"),
        () = soon(is_taken) => {}
    }
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
    let store = connect(&server, short());
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
    let store = open(&server, short()).await;
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
    let store = open(&server, short()).await;
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
