//! Waits miss nothing.

use std::sync::Arc;

use crate::StoreConfig;
use tokio::time::timeout;

use super::*;

/// An end wakes all that wait for it.
pub async fn an_end_wakes_all_that_wait_for_it<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let waits: Vec<_> = (0..5)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.ended(id).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let fetched = fetch_one(&*store).await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    assert!(finish(&*store, fetched, ok("")).await);
    for wait in waits {
        wait.await.unwrap().unwrap();
    }
    store.ended(id).await.unwrap();
}

/// An end is never missed by a racing wait.
pub async fn an_end_is_never_missed_by_a_racing_wait<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    for round in 0..50 {
        let id = enqueue(&*store, request()).await.id;
        let fetched = fetch_one(&*store).await;
        let other = Arc::clone(&store);
        let wait = tokio::spawn(async move { other.ended(id).await });
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        assert!(finish(&*store, fetched, ok("")).await);
        wait.await.unwrap().unwrap();
    }
}

/// A wait may begin before its request.
pub async fn a_wait_may_begin_before_its_request<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    for is_polled_late in [false, true] {
        let new = request();
        let wait = store.ended(new.id);
        enqueue(&*store, new).await;
        let end = async {
            let fetched = fetch_one(&*store).await;
            assert!(finish(&*store, fetched, ok("")).await);
        };
        if is_polled_late {
            end.await;
            wait.await.unwrap();
        } else {
            let (ended, ()) = tokio::join!(wait, end);
            ended.unwrap();
        }
    }
}

/// A wait returns the request as it ended.
pub async fn a_wait_returns_the_request_as_it_ended<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let large: &'static str = "x".repeat(10_000).leak();
    for outcome in [
        Some(ok("done")),
        Some(responded(400, "no")),
        Some(ok(large)),
        Some(failed("service_failed")),
        None, // cancelled
    ] {
        let new = request_with(|new| {
            new.queue = "q".to_owned();
            new.tenant = b"t".to_vec();
            new.is_listed = false;
            new.cancel_after = Some(100 * H::UNIT);
        });
        let id = new.id;
        let wait = store.ended(id);
        enqueue(&*store, new).await;
        match outcome {
            Some(outcome) => {
                let fetched = store.fetch("q", 1).await.unwrap().pop().unwrap();
                assert!(finish(&*store, fetched, outcome).await);
            }
            None => drop(store.cancel(id).await.unwrap()),
        }
        if let Some(found) = wait.await.unwrap() {
            assert_eq!(found.info, get(&*store, id).await);
            let response = store.response(id).await.unwrap();
            assert!(found.response.is_none() || found.response == response);
        }
    }
}

/// A change of the backlog is never missed.
pub async fn a_change_of_the_backlog_is_never_missed<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let worker = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for _ in 0..50 {
                let fetched = fetch_next(&*store).await;
                assert!(finish(&*store, fetched, ok("")).await);
            }
        })
    };
    for round in 0..50 {
        let id = enqueue(&*store, request()).await.id;
        for _ in 0..round % 4 {
            tokio::task::yield_now().await;
        }
        if round % 10 == 0 {
            store.ended(id).await.unwrap();
        }
    }
    worker.await.unwrap();
    let backlog = store.backlog().await.unwrap();
    assert!(backlog.queues.is_empty());
}

/// A dropped wait leaves the others.
pub async fn a_dropped_wait_leaves_the_others<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let kept = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.ended(id).await })
    };
    assert!(timeout(H::UNIT, store.ended(id)).await.is_err());
    if let Some(streams) = store.streams() {
        assert!(timeout(H::UNIT, streams.chunks(id, 0)).await.is_err());
    }
    store.cancel(id).await.unwrap();
    kept.await.unwrap().unwrap();
}
