//! The store in a cluster, whose slots move and whose masters are killed.

use redis::Value;

use super::redis_cluster::{self, Cluster};
use super::*;

/// The key whose slot has the requests of a store without a name of its own.
const KEY: &str = "triage:{default}";

fn in_cluster(
    cluster: &Cluster,
    change: impl FnOnce(RedisConfig) -> RedisConfig,
) -> Arc<RedisStore> {
    let config = StoreConfig::default().lease(Duration::from_secs(20));
    let config = RedisConfig::new(cluster.url()).store(config);
    Arc::new(RedisStore::connect(change(config)).unwrap())
}

/// Stores requests, one after the other.
async fn store_many(front: Arc<RedisStore>, number: usize) -> Vec<RequestId> {
    let mut ids = Vec::new();
    for _ in 0..number {
        let request = request("");
        until_done(|| front.enqueue(request.clone())).await;
        ids.push(request.id);
        sleep(Duration::from_millis(5)).await;
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_between_masters_loses_no_request() {
    let cluster = Cluster::start(3, 0).await;
    let (front, worker) = (in_cluster(&cluster, |c| c), in_cluster(&cluster, |c| c));
    let runs = Runs::default();
    let worker = tokio::spawn(work(worker, Arc::clone(&runs)));
    let stored = tokio::spawn(store_many(Arc::clone(&front), 150));
    let mut from = owner(&cluster, KEY).await;
    for _ in 0..3 {
        sleep(Duration::from_millis(300)).await;
        let next = (from + 1) % 3;
        move_slot(&cluster, KEY, from, next).await;
        from = next;
    }
    let ids = soon(stored).await.unwrap();
    let statuses = ended_statuses(&*front, &ids).await;
    assert_eq!(statuses, HashMap::from([(RequestStatus::Succeeded, 150)]));
    assert!(runs.lock().unwrap().values().all(|runs| *runs == 1));
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_acknowledged_request() {
    let mut cluster = Cluster::start(3, 1).await;
    let queue = queue_at(&cluster, 0).await;
    let open = || {
        in_cluster(&cluster, |config| {
            config.queue(&queue).replicas(1, Duration::from_secs(1))
        })
    };
    let (front, worker) = (open(), open());
    let waiting = store_one(&*front, "").await;
    let waiting = tokio::spawn({
        let front = Arc::clone(&front);
        async move { front.ended(waiting).await }
    });
    let ids = soon(store_many(Arc::clone(&front), 50)).await;
    cluster.nodes[0].kill();
    let runs = Runs::default();
    let worker = tokio::spawn(work(worker, Arc::clone(&runs)));
    let statuses = ended_statuses(&*front, &ids).await;
    assert_eq!(statuses, HashMap::from([(RequestStatus::Succeeded, 50)]));
    soon(waiting).await.unwrap().unwrap();
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_loses_no_request() {
    let cluster = Cluster::start(3, 1).await;
    let queue = queue_at(&cluster, 0).await;
    let open = || in_cluster(&cluster, |config| config.queue(&queue));
    let (front, worker) = (open(), open());
    let runs = Runs::default();
    let worker = tokio::spawn(work(worker, Arc::clone(&runs)));
    let stored = tokio::spawn(store_many(Arc::clone(&front), 100));
    sleep(Duration::from_millis(200)).await;
    cluster.ask(3, "CLUSTER FAILOVER").await;
    cluster.until(3, "INFO replication", "role:master").await;
    let ids = soon(stored).await.unwrap();
    let statuses = ended_statuses(&*front, &ids).await;
    assert_eq!(statuses, HashMap::from([(RequestStatus::Succeeded, 100)]));
    assert!(runs.lock().unwrap().values().all(|runs| *runs == 1));
    worker.abort();
}

/// Returns the name of a queue whose keys this node has.
async fn queue_at(cluster: &Cluster, node: usize) -> String {
    for number in 0.. {
        let queue = format!("queue-{number}");
        if owner(cluster, &format!("triage:{{{queue}}}")).await == node {
            return queue;
        }
    }
    unreachable!()
}

#[tokio::test]
async fn a_node_of_a_cluster_by_a_plain_address_says_what_to_write() {
    let cluster = Cluster::start(3, 0).await;
    let owner = owner(&cluster, KEY).await;
    let other = &cluster.nodes[(owner + 1) % 3];
    let error = connect(other, short())
        .enqueue(request(""))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

/// Moves the slot of a key from one master to another, a few keys at a time.
async fn move_slot(cluster: &Cluster, key: &str, from: usize, to: usize) {
    let Value::Int(slot) = cluster.ask(from, &format!("CLUSTER KEYSLOT {key}")).await else {
        panic!("no slot");
    };
    let names = &cluster.names;
    let importing = format!("CLUSTER SETSLOT {slot} IMPORTING {}", names[from]);
    cluster.ask(to, &importing).await;
    let migrating = format!("CLUSTER SETSLOT {slot} MIGRATING {}", names[to]);
    cluster.ask(from, &migrating).await;
    loop {
        let some = format!("CLUSTER GETKEYSINSLOT {slot} 10");
        let Value::Array(keys) = cluster.ask(from, &some).await else {
            panic!("no keys");
        };
        if keys.is_empty() {
            break;
        }
        let keys: Vec<_> = keys.into_iter().map(redis_cluster::text).collect();
        let port = cluster.nodes[to].port;
        let migrate = format!("MIGRATE 127.0.0.1 {port}  0 5000 KEYS {}", keys.join(" "));
        let reply = cluster.ask(from, &migrate).await;
        assert!(
            matches!(reply, Value::Okay | Value::SimpleString(_)),
            "{reply:?}"
        );
    }
    let arrived = format!("CLUSTER SETSLOT {slot} NODE {}", names[to]);
    for node in [to, from] {
        cluster.ask(node, &arrived).await;
    }
}

/// Returns the master that has the slot of a key.
async fn owner(cluster: &Cluster, key: &str) -> usize {
    for node in 0..cluster.nodes.len() {
        let mut connection = cluster.connect(node).await;
        let mut exists = redis::cmd("EXISTS");
        exists.arg(key);
        if exists.query_async::<Value>(&mut connection).await.is_ok() {
            return node;
        }
    }
    panic!("no node has it");
}
