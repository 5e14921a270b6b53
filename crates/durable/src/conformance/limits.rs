//! Limits of running requests.

use crate::{Fetched, StoreConfig};

use super::*;

async fn fetch<H: Harness>(harness: &H, queue: &str) -> Vec<Fetched> {
    harness.store().fetch(queue, 10).await.unwrap()
}

async fn enqueue_for<H: Harness>(harness: &H, queue: &str, tenant: &str) {
    let request = request_with(|request| {
        request.queue = queue.into();
        request.tenant = tenant.into();
    });
    enqueue(&*harness.store(), request).await;
}

fn tenants(fetched: &[Fetched]) -> Vec<&[u8]> {
    let tenants = fetched.iter().map(|fetched| &*fetched.info.tenant);
    tenants.collect()
}

/// No more run than all or a queue may.
pub async fn no_more_run_than_all_or_a_queue_may<H: Harness>() {
    let config = StoreConfig::default().max_running(3);
    let harness = H::open(config.max_running_per_queue(2)).await;
    for _ in 0..4 {
        enqueue_for(&harness, "a", "").await;
        enqueue_for(&harness, "b", "").await;
    }
    let of_a = fetch(&harness, "a").await;
    assert_eq!(of_a.len(), 2);
    let store = harness.store();
    let backlog = store.backlog().await.unwrap();
    let names: Vec<_> = backlog.queues.iter().map(|head| &head.info.queue).collect();
    assert_eq!(names, ["b"]);
    let of_b = fetch(&harness, "b").await;
    assert_eq!(of_b.len(), 1);
    let backlog = store.backlog().await.unwrap();
    assert!(backlog.queues.is_empty());
    finish(&*store, of_b.into_iter().next().unwrap(), ok("")).await;
    store.changed(backlog.version).await.unwrap();
    assert_eq!(fetch(&harness, "a").await.len(), 0);
    assert_eq!(fetch(&harness, "b").await.len(), 1);
    for fetched in of_a {
        finish(&*store, fetched, ok("")).await;
    }
    assert_eq!(fetch(&harness, "a").await.len(), 2);
}

/// Others pass a tenant at its limit.
pub async fn others_pass_a_tenant_at_its_limit<H: Harness>() {
    let harness = H::open(StoreConfig::default().max_running_per_tenant(2)).await;
    for tenant in ["x", "x", "x", "x", "y"] {
        enqueue_for(&harness, "a", tenant).await;
    }
    enqueue_for(&harness, "b", "x").await;
    let store = harness.store();
    let first = fetch(&harness, "a").await;
    assert_eq!(tenants(&first), [b"x", b"x", b"y"]);
    assert!(fetch(&harness, "b").await.is_empty());
    let backlog = store.backlog().await.unwrap();
    assert!(backlog.queues.is_empty());
    // Each end lets one more begin, in whichever queue is asked first.
    let mut running = first.into_iter();
    finish(&*store, running.next().unwrap(), ok("")).await;
    store.changed(backlog.version).await.unwrap();
    assert_eq!(fetch(&harness, "b").await.len(), 1);
    assert!(fetch(&harness, "a").await.is_empty());
    finish(&*store, running.next().unwrap(), ok("")).await;
    assert_eq!(fetch(&harness, "a").await.len(), 1);
    if let Some(operate) = store.operate() {
        let depths = operate.depths().await.unwrap();
        assert_eq!(depths.iter().map(|depth| depth.queued).sum::<u64>(), 1);
    }
}

/// A limit holds behind a pause of its tenant.
pub async fn a_limit_holds_behind_a_pause_of_its_tenant<H: Harness>() {
    let harness = H::open(StoreConfig::default().max_running_per_tenant(1)).await;
    for _ in 0..3 {
        enqueue_for(&harness, "", "x").await;
    }
    let store = harness.store();
    let fetched = fetch(&harness, "").await;
    assert_eq!(fetched.len(), 1);
    let scope = crate::PauseScope::Tenant(b"x".to_vec());
    let pause = crate::Pause {
        scope: scope.clone(),
        reason: String::new(),
        until: None,
    };
    store.pause(pause).await.unwrap();
    finish(&*store, fetched.into_iter().next().unwrap(), ok("")).await;
    assert!(fetch(&harness, "").await.is_empty());
    assert!(store.resume(scope).await.unwrap());
    assert_eq!(fetch(&harness, "").await.len(), 1);
    assert!(fetch(&harness, "").await.is_empty());
}
