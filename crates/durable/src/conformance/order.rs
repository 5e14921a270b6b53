//! The order in which requests are taken.

use std::time::Duration;

use crate::StoreConfig;
use tower_triage::{Discipline, PriorityLevels, WaitingRoomConfig};

use super::*;

fn levels(names: [&str; 3]) -> WaitingRoomConfig {
    let levels = PriorityLevels::new(names, names[1]).unwrap();
    WaitingRoomConfig::default().levels(levels)
}

/// A more urgent level goes first.
pub async fn a_more_urgent_level_goes_first<H: Harness>() {
    let order = levels(["high", "normal", "batch"]);
    let harness = H::open(StoreConfig::default().order(order)).await;
    let store = harness.store();
    let mut ids = Vec::new();
    for level in [2, 1, 0] {
        let request = request_with(|request| request.level = level);
        ids.push(enqueue(&*store, request).await.id);
    }
    ids.reverse();
    assert_eq!(run_all(&*store).await, ids);
    // A level that there is not is the lowest.
    let info = enqueue(&*store, request_with(|request| request.level = 200)).await;
    assert_eq!(info.level, 2);
}

/// Requests of a level go in their order.
pub async fn requests_of_a_level_go_in_their_order<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(enqueue(&*store, request()).await.id);
    }
    let mut order = run_all(&*store).await;
    if !H::IS_EXACT {
        ids.sort();
        order.sort();
    }
    assert_eq!(order, ids);
}

/// A fair order alternates between tenants.
pub async fn a_fair_order_alternates_between_tenants<H: Harness>() {
    let order = WaitingRoomConfig::default().discipline(Discipline::Fair);
    let harness = H::open(StoreConfig::default().order(order)).await;
    let store = harness.store();
    let mut small = Vec::new();
    for (tenant, count) in [("big", 20), ("small", 2)] {
        for _ in 0..count {
            let request = request_with(|request| request.tenant = tenant.into());
            let id = enqueue(&*store, request).await.id;
            if tenant == "small" {
                small.push(id);
            }
        }
    }
    let order = run_all(&*store).await;
    assert_eq!(order.len(), 22);
    let last_small = order.iter().rposition(|id| small.contains(id)).unwrap();
    assert!(last_small < 8, "the small tenant ended at {last_small}");
}

/// A queue is taken from alone.
pub async fn a_queue_is_taken_from_alone<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let a = enqueue(&*store, request_with(|request| request.queue = "a".into())).await;
    let b = enqueue(&*store, request_with(|request| request.queue = "b".into())).await;
    assert!(store.fetch("", 10).await.unwrap().is_empty());
    let fetched = store.fetch("b", 10).await.unwrap();
    let names: Vec<_> = fetched.iter().map(|fetched| fetched.lease.id()).collect();
    assert_eq!(names, [b.id]);
    assert_eq!(fetched[0].info.queue, "b");
    let fetched = store.fetch("a", 10).await.unwrap();
    assert_eq!(fetched[0].lease.id(), a.id);
    assert_eq!(fetched[0].request, a.id.to_string());
    assert_eq!(fetched[0].lease.attempt(), 1);
    assert_eq!(fetched[0].info.attempts, 1);
}

/// A delayed request begins later.
pub async fn a_delayed_request_begins_later<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let delayed = request_with(|request| request.delay = Some(H::UNIT * 3));
    let delayed = enqueue(&*store, delayed).await;
    assert_eq!(delayed.not_before, Some(delayed.created + H::UNIT * 3));
    assert!(store.fetch("", 1).await.unwrap().is_empty());
    let backlog = store.backlog().await.unwrap();
    assert!(backlog.queues.is_empty());
    assert!(backlog.next.is_some());
    let fetched = fetch_next(&*store).await;
    assert_eq!(fetched.lease.id(), delayed.id);
    let started = fetched.info.started.unwrap();
    assert!(started >= delayed.not_before.unwrap());
}

/// Positions count those that go before.
pub async fn positions_count_those_that_go_before<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let mut ids = Vec::new();
    for level in [1, 1, 0] {
        let request = request_with(|request| request.level = level);
        ids.push(enqueue(&*store, request).await.id);
    }
    let elsewhere = request_with(|request| request.queue = "b".into());
    let elsewhere = enqueue(&*store, elsewhere).await.id;
    let mut positions = Vec::new();
    for id in &ids {
        positions.push(store.position(*id).await.unwrap().unwrap());
    }
    assert_eq!(store.position(elsewhere).await.unwrap(), Some(1));
    match H::IS_EXACT {
        true => assert_eq!(positions, [2, 3, 1]),
        false => assert_eq!(positions[2], 1),
    }
    let running = fetch_one(&*store).await.lease.id();
    assert_eq!(store.position(running).await.unwrap(), None);
}

/// The backlog names the head of each queue.
pub async fn the_backlog_names_the_head_of_each_queue<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    assert!(store.backlog().await.unwrap().queues.is_empty());
    let mut last = None;
    for (queue, level) in [("a", 1), ("b", 1), ("a", 0)] {
        let request = request_with(|request| {
            request.queue = queue.into();
            request.level = level;
            request.tenant = queue.into();
            request.cost = 7;
        });
        last = Some(enqueue(&*store, request).await.id);
    }
    let mut heads = store.backlog().await.unwrap().queues;
    heads.sort_by(|a, b| a.info.queue.cmp(&b.info.queue));
    let queues: Vec<_> = heads.iter().map(|head| head.info.queue.as_str()).collect();
    assert_eq!(queues, ["a", "b"]);
    assert_eq!(Some(heads[0].info.id), last);
    assert_eq!((heads[0].info.level, heads[1].info.level), (0, 1));
    assert_eq!(heads[0].info.tenant, b"a");
    assert_eq!(heads[0].cost, 7);
    assert!(heads.iter().all(|head| head.runnable >= 1));
    assert_eq!(store.fetch("a", 9).await.unwrap().len(), 2);
    let heads = store.backlog().await.unwrap().queues;
    assert_eq!(heads.len(), 1);
}

/// Depths count waiting and running requests.
pub async fn depths_count_waiting_and_running_requests<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    for (queue, level) in [("a", 0), ("a", 1), ("a", 1), ("b", 0)] {
        let request = request_with(|request| {
            request.queue = queue.into();
            request.level = level;
        });
        enqueue(&*store, request).await;
    }
    let later = request_with(|request| {
        request.queue = "b".into();
        request.delay = Some(H::UNIT * 100);
    });
    enqueue(&*store, later).await;
    store.fetch("a", 2).await.unwrap();
    pass::<H>(1).await;
    let mut depths = store.depths().await.unwrap();
    depths.sort_by(|a, b| (&a.queue, a.level).cmp(&(&b.queue, b.level)));
    let counts: Vec<_> = depths
        .iter()
        .map(|depth| {
            (
                depth.queue.as_str(),
                depth.level,
                depth.queued,
                depth.running,
            )
        })
        .collect();
    assert_eq!(counts, [("a", 0, 0, 1), ("a", 1, 1, 1), ("b", 0, 2, 0)]);
    assert_eq!(depths[0].oldest, None);
    assert!(depths[1].oldest.unwrap() >= H::UNIT);
}

/// A delay is no part of an age.
pub async fn a_delay_is_no_part_of_an_age<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let delay = H::UNIT * 2;
    let began = tokio::time::Instant::now();
    let later = request_with(|request| request.delay = Some(delay));
    enqueue(&*store, later).await;
    assert_eq!(store.depths().await.unwrap()[0].oldest, None);
    pass::<H>(3).await;
    eventually::<H>(async || !store.backlog().await.unwrap().queues.is_empty()).await;
    let age = store.depths().await.unwrap()[0].oldest;
    // Times are kept in milliseconds.
    let longest = began.elapsed() - delay + Duration::from_millis(2);
    assert!(age.unwrap() <= longest, "{age:?} > {longest:?}");
}
