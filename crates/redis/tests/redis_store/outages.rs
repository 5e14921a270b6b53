//! Live workers keep their requests, whatever Redis and its clock do, and lost keys stop no queue.

use tower_triage::{PriorityLevels, WaitingRoomConfig};
use tower_triage_durable::Operate;
use tower_triage_durable::RequestInfo;

use super::*;

/// Stores that sweep, beside the one of the worker.
fn sweepers(server: &Server) -> Vec<RedisStore> {
    (0..6).map(|_| connect(server, short())).collect()
}

/// Asserts that a worker has kept its request, and ends it.
async fn ends(store: &RedisStore, fetched: Fetched) {
    let info = store.get(fetched.lease.id()).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Processing, "{info:?}");
    assert!(
        store
            .finish(fetched.lease, responded(200, ""))
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_live_worker_is_not_swept_after_error_replies() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let _sweepers = sweepers(&server);
    store_one(&store, "").await;
    let fetched = take(&store).await;
    store.called(&fetched.lease).await.unwrap();
    for _ in 0..3 {
        server.ask("CONFIG SET min-replicas-to-write 1").unwrap();
        sleep(2 * short().lease).await;
        server.ask("CONFIG SET min-replicas-to-write 0").unwrap();
        sleep(short().lease).await;
    }
    ends(&store, fetched).await;
}

/// The clock steps forward, so all leases look old at once.
#[tokio::test]
async fn a_live_worker_is_not_swept_after_a_step_of_the_clock() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let _sweepers = sweepers(&server);
    store_one(&store, "").await;
    let fetched = take(&store).await;
    store.called(&fetched.lease).await.unwrap();
    let (message, rest) = fetched.lease.fence().split_once('/').unwrap();
    let (_, owner) = rest.split_once('/').unwrap();
    let streams = keys(&server, "*:s:*");
    for _ in 0..200 {
        let step = format!(
            "XCLAIM {} workers {owner} 0 {message} IDLE 60000 JUSTID",
            streams[0]
        );
        assert!(server.ask(&step).unwrap().contains(message), "{step}");
        sleep(Duration::from_millis(20)).await;
    }
    ends(&store, fetched).await;
}

/// Returns the keys of this pattern.
fn keys(server: &Server, pattern: &str) -> Vec<String> {
    let reply = server.ask(&format!("KEYS {pattern}")).unwrap();
    let lines = reply.lines().filter(|line| !line.starts_with(['*', '$']));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn a_queue_whose_keys_are_lost_is_found_again() {
    for lost in ["*:l:*", "*:ready", "*:f*:*", "*:n"] {
        for discipline in [
            tower_triage::Discipline::Fifo,
            tower_triage::Discipline::Fair,
        ] {
            let order = WaitingRoomConfig::default().discipline(discipline);
            let server = Server::start();
            let store = open(&server, short().order(order)).await;
            let mut waiting = Vec::new();
            for _ in 0..3 {
                waiting.push(store_one(&store, "").await);
            }
            for key in keys(&server, lost) {
                server.ask(&format!("DEL {key}")).unwrap();
            }
            waiting.push(store_one(&store, "").await);
            let mut taken = Vec::new();
            for _ in 0..4 {
                let fetched = take(&store).await;
                taken.push(fetched.lease.id());
                store
                    .finish(fetched.lease, responded(200, ""))
                    .await
                    .unwrap();
            }
            taken.sort();
            waiting.sort();
            assert_eq!(taken, waiting, "{lost}, {discipline:?}");
        }
    }
}

#[tokio::test]
async fn a_waiting_request_keeps_its_level_when_the_levels_change() {
    let server = Server::start();
    let with = async |names: &[&str]| {
        let levels = PriorityLevels::new(names.iter().copied(), names[0]).unwrap();
        let order = WaitingRoomConfig::default().levels(levels);
        open(&server, short().order(order)).await
    };
    let (before, after) = (
        with(&["high", "batch"]).await,
        with(&["urgent", "high", "normal", "batch"]).await,
    );
    let mut ids = Vec::new();
    for (store, level) in [(&before, 1), (&after, 2), (&before, 0), (&after, 0)] {
        let mut request = request("");
        request.level = level;
        ids.push(request.id);
        store.enqueue(request).await.unwrap();
    }
    let level = async |store: &RedisStore, id| {
        let info: RequestInfo = store.get(id).await.unwrap().unwrap();
        info.level
    };
    for (id, in_before, in_after) in [
        (ids[0], 1, 3),
        (ids[1], 1, 2),
        (ids[2], 0, 1),
        (ids[3], 1, 0),
    ] {
        assert_eq!(level(&before, id).await, in_before);
        assert_eq!(level(&after, id).await, in_after);
    }
    let depths = after.depths().await.unwrap();
    let mut levels: Vec<_> = depths
        .iter()
        .map(|depth| (depth.level, depth.queued))
        .collect();
    levels.sort_unstable();
    assert_eq!(levels, [(0, 1), (1, 1), (2, 1), (3, 1)]);
    for next in [3, 2, 1, 0] {
        assert_eq!(take(&after).await.lease.id(), ids[next]);
    }
}
