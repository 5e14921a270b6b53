//! A replica takes the place of its master, at the same address.

use super::proxy::Proxy;
use super::*;

const AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

fn start_master() -> Server {
    Server::with(&[&["--appendonly", "yes"][..], &AT_ONCE].concat())
}

/// Starts a replica that has all of its master.
async fn replica_of(master: &Server) -> Server {
    let port = master.port.to_string();
    let settings = ["--appendonly", "yes", "--replicaof", "127.0.0.1", &port];
    let replica = Server::with(&[&settings[..], &AT_ONCE].concat());
    until(&replica, "INFO replication", "master_link_status:up").await;
    replica
}

async fn until(server: &Server, command: &str, wanted: &str) {
    soon(async {
        while !server
            .ask(command)
            .is_some_and(|reply| reply.contains(wanted))
        {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

fn replicated(proxy: &Proxy) -> Arc<RedisStore> {
    let config = RedisConfig::new(proxy.url()).store(short());
    let config = config.replicas(1, Duration::from_secs(1));
    Arc::new(RedisStore::connect(config).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_has_each_acknowledged_request() {
    let mut master = start_master();
    let replica = replica_of(&master).await;
    let proxy = Proxy::to(master.port).await;
    let (front, worker) = (replicated(&proxy), replicated(&proxy));
    let waiting = store_one(&*front, "").await;
    let waiting = tokio::spawn({
        let front = Arc::clone(&front);
        async move { until_done(|| front.ended(waiting)).await }
    });
    let mut ids = Vec::new();
    for _ in 0..50 {
        ids.push(store_one(&*front, "").await);
    }
    // The address leads to the replica before it is promoted.
    proxy.lead_to(replica.port);
    master.kill();
    let early = soon(async {
        loop {
            if let Err(StoreError::Unavailable(error)) = front.get(ids[0]).await
                && error.contains("a replica")
            {
                return front.enqueue(request("")).await;
            }
            sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(matches!(early.await, Err(StoreError::Unavailable(_))));
    replica.ask("REPLICAOF NO ONE").unwrap();
    let runs = Runs::default();
    let worker = tokio::spawn(work(worker, Arc::clone(&runs)));
    let statuses = ended_statuses(&*front, &ids).await;
    assert_eq!(statuses, HashMap::from([(RequestStatus::Succeeded, 50)]));
    soon(waiting).await.unwrap();
    worker.abort();
}

#[tokio::test]
async fn a_demoted_master_is_left_although_its_connections_hold() {
    let master = start_master();
    let replica = replica_of(&master).await;
    let proxy = Proxy::to(master.port).await;
    let config = RedisConfig::new(proxy.url()).store(short());
    let store = RedisStore::connect(config).unwrap();
    store_one(&store, "").await;
    // What runs when the roles change goes on with the new master.
    let fetched = take(&store).await;
    let offset = |server: &Server| {
        let info = server.ask("INFO replication").unwrap();
        let offset = info
            .lines()
            .find(|line| line.starts_with("master_repl_offset"));
        offset.unwrap().to_owned()
    };
    soon(async {
        while offset(&master) != offset(&replica) {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    replica.ask("REPLICAOF NO ONE").unwrap();
    master
        .ask(&format!("REPLICAOF 127.0.0.1 {}", replica.port))
        .unwrap();
    proxy.lead_to(replica.port);
    let finished = soon(until_done(|| {
        store.finish(fetched.lease.clone(), responded(200, ""))
    }));
    assert!(finished.await, "the lease holds at the new master");
    let second = soon(async {
        let request = request("");
        until_done(|| store.enqueue(request.clone())).await;
        request.id
    });
    let second = second.await;
    assert_eq!(take(&store).await.lease.id(), second);
    let at_new = open(&replica, short()).await.get(second).await.unwrap();
    assert!(at_new.is_some());
}
