//! Pauses.

use std::time::SystemTime;

use crate::{Pause, PauseScope, StoreConfig};

use super::*;

fn pause_of(scope: PauseScope) -> Pause {
    Pause {
        scope,
        reason: "maintenance".to_owned(),
        until: None,
    }
}

/// A paused queue is not taken from.
pub async fn a_paused_queue_is_not_taken_from<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let scope = PauseScope::Queue(String::new());
    enqueue(&*store, request()).await;
    enqueue(&*store, request_with(|request| request.queue = "b".into())).await;
    store.pause(pause_of(scope.clone())).await.unwrap();
    enqueue(&*store, request()).await;
    assert!(store.fetch("", 1).await.unwrap().is_empty());
    let backlog = store.backlog().await.unwrap();
    assert_eq!(backlog.queues.len(), 1);
    assert_eq!(backlog.queues[0].info.queue, "b");
    assert_eq!(store.fetch("b", 1).await.unwrap().len(), 1);
    assert_eq!(store.pauses().await.unwrap(), [pause_of(scope.clone())]);
    let version = store.backlog().await.unwrap().version;
    assert!(store.resume(scope.clone()).await.unwrap());
    store.changed(version).await.unwrap();
    assert!(!store.resume(scope).await.unwrap());
    assert_eq!(store.fetch("", 10).await.unwrap().len(), 2);
    assert!(store.pauses().await.unwrap().is_empty());
}

/// A paused tenant lets others pass.
pub async fn a_paused_tenant_lets_others_pass<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let scope = PauseScope::Tenant(b"a".to_vec());
    let mut ids = Vec::new();
    for (nth, tenant) in ["a", "b", "a", "b"].into_iter().enumerate() {
        if nth == 2 {
            store.pause(pause_of(scope.clone())).await.unwrap();
        }
        let request = request_with(|request| request.tenant = tenant.into());
        ids.push(enqueue(&*store, request).await.id);
    }
    let backlog = store.backlog().await.unwrap();
    assert_eq!(backlog.queues[0].info.tenant, b"b");
    let fetched = fetch_one(&*store).await;
    assert_eq!(fetched.info.tenant, b"b");
    assert!(store.resume(scope).await.unwrap());
    let order = run_all(&*store).await;
    match H::IS_EXACT {
        true => assert_eq!(order, [ids[0], ids[2], ids[3]]),
        false => assert_eq!(order.len(), 3),
    }
}

/// A paused store is not taken from.
pub async fn a_paused_store_is_not_taken_from<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    for queue in ["", "b"] {
        enqueue(
            &*store,
            request_with(|request| request.queue = queue.into()),
        )
        .await;
    }
    let running = fetch_one(&*store).await;
    store.pause(pause_of(PauseScope::All)).await.unwrap();
    assert!(store.fetch("b", 1).await.unwrap().is_empty());
    assert!(store.backlog().await.unwrap().queues.is_empty());
    // What runs goes on.
    assert!(finish(&*store, running, ok("")).await);
    assert!(store.resume(PauseScope::All).await.unwrap());
    assert_eq!(store.fetch("b", 1).await.unwrap().len(), 1);
}

/// A pause ends by itself.
pub async fn a_pause_ends_by_itself<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let created = enqueue(&*store, request()).await.created;
    let mut pause = pause_of(PauseScope::Queue(String::new()));
    pause.until = Some(created + H::UNIT * 3);
    store.pause(pause).await.unwrap();
    assert!(store.fetch("", 1).await.unwrap().is_empty());
    assert!(store.backlog().await.unwrap().next.is_some());
    let fetched = fetch_next(&*store).await;
    assert!(fetched.info.started.unwrap() >= created + H::UNIT * 3);
    assert!(store.pauses().await.unwrap().is_empty());
    // One that is over never begins.
    let mut over = pause_of(PauseScope::Tenant(Vec::new()));
    over.until = Some(SystemTime::UNIX_EPOCH);
    store.pause(over).await.unwrap();
    enqueue(&*store, request()).await;
    fetch_one(&*store).await;
}

/// A pause of the same scope is replaced.
pub async fn a_pause_of_the_same_scope_is_replaced<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let mut pause = pause_of(PauseScope::All);
    store.pause(pause.clone()).await.unwrap();
    pause.reason = "another".to_owned();
    store.pause(pause.clone()).await.unwrap();
    assert_eq!(store.pauses().await.unwrap(), [pause]);
    assert!(store.resume(PauseScope::All).await.unwrap());
    assert!(store.pauses().await.unwrap().is_empty());
}
