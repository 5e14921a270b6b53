//! Processes die, and stores are closed.

use std::time::Duration;

use bytes::Bytes;

use crate::reason::WORKER_LOST;
use crate::{Enqueued, Pause, PauseScope, RequestStatus, Stop, StoreConfig};

use super::*;

/// What waits survives a crash.
pub async fn what_waits_survives_a_crash<H: Harness>() {
    let mut harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let mut before = Vec::new();
    for nth in 0..10 {
        let request = request_with(|request| {
            request.level = nth % 2;
            request.tenant = vec![nth];
            request.delay = (nth == 9).then_some(H::UNIT * 20);
            request.cancel_after = (nth == 8).then_some(H::UNIT * 1_000);
        });
        before.push(enqueue(&*store, request).await);
    }
    drop(store);
    harness.crash().await;
    let store = harness.store();
    for info in &before {
        assert_eq!(get(&*store, info.id).await, *info);
        if let Some(drain) = store.drain() {
            let body = drain.request(info.id).await.unwrap().unwrap();
            assert_eq!(body, info.id.to_string());
        }
    }
    if let Some(operate) = store.operate() {
        let listed = operate.list(listing(|_| ())).await.unwrap().requests;
        assert!(listed.iter().rev().eq(&before));
    }
    let mut order = run_all(&*store).await;
    let mut expected: Vec<_> = [0, 2, 4, 6, 8, 1, 3, 5, 7].map(|nth| before[nth].id).into();
    if !H::IS_EXACT {
        order.sort();
        expected.sort();
    }
    assert_eq!(order, expected);
    assert_eq!(fetch_next(&*store).await.lease.id(), before[9].id);
}

/// What ran has failed after a crash.
pub async fn what_ran_has_failed_after_a_crash<H: Harness>() {
    let mut harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let fetched = enqueue(&*store, request()).await.id;
    fetch_one(&*store).await;
    let called = enqueue(&*store, request()).await.id;
    store.called(&fetch_one(&*store).await.lease).await.unwrap();
    let again_later = enqueue(&*store, request()).await.id;
    let retried = fetch_one(&*store).await;
    assert!(finish(&*store, retried, again(H::UNIT)).await);
    drop(store);
    harness.crash().await;
    let store = harness.store();
    for id in [fetched, called] {
        store.ended(id).await.unwrap();
        let info = get(&*store, id).await;
        assert_eq!((info.status, info.attempts), (RequestStatus::Failed, 1));
        assert_eq!(info.reason.as_deref(), Some(WORKER_LOST));
    }
    let next = fetch_next(&*store).await;
    assert_eq!((next.lease.id(), next.lease.attempt()), (again_later, 2));
}

/// What ran is retried after a crash.
pub async fn what_ran_is_retried_after_a_crash<H: Harness>() {
    let mut harness = H::open(retrying()).await;
    let id = enqueue(&*harness.store(), request()).await.id;
    fetch_one(&*harness.store()).await;
    harness.crash().await;
    let fetched = fetch_next(&*harness.store()).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 2));
    // That was the last start.
    harness.crash().await;
    let store = harness.store();
    store.ended(id).await.unwrap();
    let info = get(&*store, id).await;
    assert_eq!((info.status, info.attempts), (RequestStatus::Failed, 2));
    assert_eq!(info.reason.as_deref(), Some(WORKER_LOST));
}

/// A lease of a dead worker has no effect.
pub async fn a_lease_of_a_dead_worker_has_no_effect<H: Harness>() {
    let mut harness = H::open(retrying()).await;
    let id = enqueue(&*harness.store(), request()).await.id;
    let dead = fetch_one(&*harness.store()).await;
    harness.crash().await;
    let store = harness.store();
    assert!(!finish(&*store, dead.clone(), ok("dead")).await);
    let fetched = fetch_next(&*store).await;
    assert!(!finish(&*store, dead.clone(), again(Duration::ZERO)).await);
    assert_eq!(store.stopped(&dead.lease).await.unwrap(), Stop::Lost);
    if let Some(streams) = store.streams() {
        streams.append(&dead.lease, "dead".into()).await.unwrap();
    }
    assert!(finish(&*store, fetched, ok("alive")).await);
    assert_eq!(store.response(id).await.unwrap().unwrap(), "alive");
    if let Some(streams) = store.streams() {
        let read = streams.chunks(id, 0).await.unwrap().unwrap();
        assert!(read.chunks.is_empty());
    }
}

/// Outcomes and keys survive a crash.
pub async fn outcomes_and_keys_survive_a_crash<H: Harness>() {
    let mut harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let has_webhooks = store.webhooks().is_some();
    let with_key = || {
        request_with(|request| {
            request.idempotency = key("k", 1);
            request.webhook = has_webhooks.then(|| "https://example.com/hook".into());
        })
    };
    let id = enqueue(&*store, with_key()).await.id;
    let fetched = fetch_one(&*store).await;
    if let Some(streams) = store.streams() {
        let piece = Bytes::from_static(b"piece");
        streams.append(&fetched.lease, piece).await.unwrap();
    }
    assert!(finish(&*store, fetched, responded(418, "teapot")).await);
    let before = get(&*store, id).await;
    drop(store);
    harness.crash().await;
    let store = harness.store();
    assert_eq!(get(&*store, id).await, before);
    assert_eq!(store.response(id).await.unwrap().unwrap(), "teapot");
    if let Some(streams) = store.streams() {
        let read = streams.chunks(id, 0).await.unwrap().unwrap();
        assert_eq!(read.chunks[0].data, "piece");
        assert!(read.is_end);
    }
    let known = store.enqueue(with_key()).await.unwrap();
    assert_eq!(known, Enqueued::Known(before));
    if let Some(webhooks) = store.webhooks() {
        let due = webhooks.due_webhooks(10).await.unwrap();
        assert_eq!((due[0].info.id, due[0].tries), (id, 0));
    }
}

/// Values survive a crash.
pub async fn values_survive_a_crash<H: Harness>() {
    let mut harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let Some(values) = store.key_values() else {
        return;
    };
    values.put("file/1", "one".into()).await.unwrap();
    values.put("file/2", "two".into()).await.unwrap();
    assert!(values.remove("file/1").await.unwrap());
    drop(store);
    harness.crash().await;
    let values = harness.store().values("file/", None, 10).await.unwrap();
    assert_eq!(values, [("file/2".to_owned(), "two".into())]);
}

/// Pauses survive a crash.
pub async fn pauses_survive_a_crash<H: Harness>() {
    let mut harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let Some(operate) = store.operate() else {
        return;
    };
    let of_a = request_with(|request| request.tenant = b"a".to_vec());
    enqueue(&*store, of_a).await;
    let scopes = [
        PauseScope::Queue("q".into()),
        PauseScope::Tenant(b"a".to_vec()),
    ];
    for scope in scopes.clone() {
        let pause = Pause {
            scope,
            reason: "repair".into(),
            until: None,
        };
        operate.pause(pause).await.unwrap();
    }
    drop(store);
    harness.crash().await;
    let store = harness.store();
    let mut held: Vec<_> = store.pauses().await.unwrap();
    held.sort_by(|a, b| a.scope.cmp(&b.scope));
    let held: Vec<_> = held.into_iter().map(|pause| pause.scope).collect();
    assert_eq!(held, scopes);
    assert!(store.fetch("", 1).await.unwrap().is_empty());
    assert!(store.resume(scopes[1].clone()).await.unwrap());
    fetch_one(&*store).await;
}

/// A closed store gives back what was not called.
pub async fn a_closed_store_gives_back_what_was_not_called<H: Harness>() {
    let mut harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    fetch_one(&*store).await;
    store.close().await.unwrap();
    drop(store);
    harness.crash().await;
    let fetched = fetch_next(&*harness.store()).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 1));
}
