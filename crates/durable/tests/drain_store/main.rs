//! A store that takes the place of another one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tower_triage_durable::{
    DrainStore, Enqueued, Pause, PauseScope, RequestId, RequestStatus, Store, StoreConfig,
    StoreError,
};
use tower_triage_durable::{KeyValues, Operate, Streams};
use tower_triage_embedded::EmbeddedStore;

use tower_triage_durable::conformance::*;

/// An empty store beside the one that is tested.
struct BesideEmpty(Arc<DrainStore>);

impl Harness for BesideEmpty {
    const UNIT: Duration = Duration::from_secs(1);
    const IS_EXACT: bool = true;

    fn runtime() -> Runtime {
        let mut runtime = Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap()
    }

    async fn open(config: StoreConfig) -> Self {
        let open = || Arc::new(EmbeddedStore::in_memory(config.clone()).unwrap());
        Self(Arc::new(DrainStore::new(open(), open())))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0) as Arc<dyn Store>
    }

    async fn crash(&mut self) {
        unreachable!("it does not survive its process")
    }
}

tower_triage_durable::conformance!(BesideEmpty: streams, operate, webhooks, key_values, drain, stored_bytes);

struct Two {
    old: Arc<EmbeddedStore>,
    new: Arc<EmbeddedStore>,
    both: DrainStore,
}

fn two() -> Two {
    let open = || Arc::new(EmbeddedStore::in_memory(StoreConfig::default()).unwrap());
    let (old, new) = (open(), open());
    let both = DrainStore::new(new.clone(), old.clone());
    Two { old, new, both }
}

#[tokio::test(start_paused = true)]
async fn an_old_request_ends_where_it_was_stored() {
    let Two { old, new, both } = two();
    let id = enqueue(&*old, request()).await.id;
    assert_eq!(both.remaining().await.unwrap(), 1);
    assert_eq!(both.position(id).await.unwrap(), Some(1));
    assert_eq!(both.backlog().await.unwrap().queues[0].info.id, id);
    let fetched = fetch_one(&both).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 1));
    both.called(&fetched.lease).await.unwrap();
    assert_eq!(status(&both, id).await, RequestStatus::Processing);
    both.append(&fetched.lease, Bytes::from_static(b"piece"))
        .await
        .unwrap();
    let (ended, had_effect) = tokio::join!(both.ended(id), finish(&both, fetched, ok("done")));
    ended.unwrap();
    assert!(had_effect);
    assert_eq!(both.response(id).await.unwrap().unwrap(), "done");
    assert_eq!(
        both.chunks(id, 0).await.unwrap().unwrap().chunks[0].data,
        "piece"
    );
    assert_eq!(status(&*old, id).await, RequestStatus::Succeeded);
    assert!(new.get(id).await.unwrap().is_none());
    assert_eq!(both.remaining().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn new_requests_leave_the_old_store_alone() {
    let Two { old, new, both } = two();
    let id = enqueue(&both, request()).await.id;
    assert!(new.get(id).await.unwrap().is_some());
    assert!(old.get(id).await.unwrap().is_none());
    both.put("key", Bytes::from_static(b"value")).await.unwrap();
    assert!(old.value("key").await.unwrap().is_none());
    assert_eq!(both.remaining().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_an_old_request_returns_it() {
    let Two { old, both, .. } = two();
    let keyed = |fingerprint| request_with(|request| request.idempotency = key("k", fingerprint));
    let first = enqueue(&*old, keyed(1)).await.id;
    let again = both.enqueue(keyed(1)).await.unwrap();
    assert!(matches!(again, Enqueued::Known(info) if info.id == first));
    let other = both.enqueue(keyed(2)).await.unwrap_err();
    assert_eq!(other, StoreError::IdempotencyKeyReused);
    // The line of a batch has the same name each time.
    let line = request_with(|request| request.is_listed = false);
    enqueue(&*old, line.clone()).await;
    let again = both.enqueue(line).await.unwrap();
    assert!(matches!(again, Enqueued::Known(_)));
}

#[tokio::test(start_paused = true)]
async fn workers_take_from_both_in_turn_and_urgent_requests_first() {
    let Two { old, new, both } = two();
    let level = |level| request_with(|request| request.level = level);
    let mut olds = Vec::new();
    for _ in 0..3 {
        olds.push(enqueue(&*old, level(1)).await.id);
        enqueue(&*new, level(1)).await;
    }
    assert_eq!(both.backlog().await.unwrap().queues[0].runnable, 6);
    let order = run_all(&both).await;
    let is_old: Vec<_> = order.iter().map(|id| olds.contains(id)).collect();
    assert_eq!(is_old.len(), 6);
    assert!(
        is_old.windows(2).all(|pair| pair[0] != pair[1]),
        "{is_old:?}"
    );

    for (patient, hurried) in [(&old, &new), (&new, &old)] {
        enqueue(&**patient, level(1)).await;
        let urgent = enqueue(&**hurried, level(0)).await.id;
        assert_eq!(both.backlog().await.unwrap().queues[0].info.id, urgent);
        assert_eq!(run_all(&both).await[0], urgent);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_of_either_store_is_never_missed() {
    let Two { old, new, both } = two();
    for store in [&old, &new] {
        let version = both.backlog().await.unwrap().version;
        let (changed, _) = tokio::join!(both.changed(version), enqueue(&**store, request()));
        changed.unwrap();
        let version = both.backlog().await.unwrap().version;
        enqueue(&**store, request()).await;
        both.changed(version).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn lists_go_on_from_the_new_store_to_the_old_one() {
    let Two { old, new, both } = two();
    let mut ids = Vec::new();
    for store in [&old, &old, &old, &new, &new] {
        ids.insert(0, enqueue(&**store, request()).await.id);
    }
    for limit in 1..=6 {
        let mut listed: Vec<RequestId> = Vec::new();
        loop {
            let page = listing(|listing| {
                listing.limit = limit;
                listing.after = listed.last().copied();
            });
            let page = both.list(page).await.unwrap();
            assert!(page.requests.len() <= limit);
            listed.extend(page.requests.iter().map(|info| info.id));
            if !page.has_more {
                break;
            }
        }
        assert_eq!(listed, ids, "{limit} at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn cancels_pauses_and_values_reach_both_stores() {
    let Two { old, new, both } = two();
    let id = enqueue(&*old, request()).await.id;
    let pause = Pause {
        scope: PauseScope::All,
        reason: "maintenance".to_owned(),
        until: None,
    };
    both.pause(pause.clone()).await.unwrap();
    assert_eq!(both.pauses().await.unwrap(), [pause]);
    enqueue(&*new, request()).await;
    assert!(run_all(&both).await.is_empty());
    assert!(both.resume(PauseScope::All).await.unwrap());
    let canceled = both.cancel(id).await.unwrap().unwrap();
    assert_eq!(canceled.status, RequestStatus::Canceled);
    assert_eq!(run_all(&both).await.len(), 1);

    for (key, value) in [("a/1", "old"), ("a/2", "old"), ("a/4", "old")] {
        old.put(key, Bytes::from_static(value.as_bytes()))
            .await
            .unwrap();
    }
    both.put("a/2", Bytes::from_static(b"new")).await.unwrap();
    both.put("a/3", Bytes::from_static(b"new")).await.unwrap();
    let values = both.values("a/", Some("a/1"), 2).await.unwrap();
    let expected = [("a/2", "new"), ("a/3", "new")];
    let expected =
        expected.map(|(key, value)| (key.to_owned(), Bytes::from_static(value.as_bytes())));
    assert_eq!(values, expected);
    assert!(both.remove("a/2").await.unwrap());
    assert!(both.value("a/2").await.unwrap().is_none());
    assert_eq!(both.value("a/4").await.unwrap().unwrap(), "old");
}

#[tokio::test(start_paused = true)]
async fn no_value_is_missed_where_a_page_of_one_store_ends_early() {
    let Two { old, new, both } = two();
    // A store returns no more than 64 KiB or so at a time.
    let large = Bytes::from(vec![b'x'; 40 << 10]);
    let mut expected = Vec::new();
    for i in 0..9 {
        let key = format!("a/{i}");
        let store = if i % 4 == 3 { &new } else { &old };
        store.put(&key, large.clone()).await.unwrap();
        expected.push(key);
    }
    for max in [1, 2, 100] {
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().map(String::as_str);
            let page = both.values("a/", after, max).await.unwrap();
            if page.is_empty() {
                break;
            }
            found.extend(page.into_iter().map(|(key, _)| key));
        }
        assert_eq!(found, expected, "{max} at a time");
    }
}
