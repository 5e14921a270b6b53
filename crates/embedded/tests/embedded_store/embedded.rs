//! The embedded store, in a folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tower_triage::{PriorityLevels, WaitingRoomConfig};
use tower_triage_durable::KeyValues;
use tower_triage_durable::{Outcome, Store, StoreConfig};
use tower_triage_embedded::{EmbeddedStore, OpenError};

use tower_triage_durable::conformance::{
    Harness, enqueue, fetch_next, finish, request, request_with, run_all,
};

/// A folder of a test's own, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Embedded {
    // Before its folder, so that it is dropped first.
    store: Option<Arc<EmbeddedStore>>,
    folder: Folder,
    config: StoreConfig,
}

impl Harness for Embedded {
    const UNIT: Duration = Duration::from_secs(1);
    const IS_EXACT: bool = true;

    fn runtime() -> Runtime {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(2).enable_all().build().unwrap()
    }

    async fn open(config: StoreConfig) -> Self {
        let folder = Folder::new();
        let store = EmbeddedStore::open(folder.path(), config.clone()).unwrap();
        Self {
            store: Some(Arc::new(store)),
            folder,
            config,
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        let store = self.store.as_ref().expect("it is open");
        Arc::clone(store) as Arc<dyn Store>
    }

    async fn crash(&mut self) {
        // Without a word to it. Processes that are killed have tests of their own.
        self.store = None;
        // A task that was aborted may hold the store for a moment longer. The whole test has a time limit.
        let store = loop {
            match EmbeddedStore::open(self.folder.path(), self.config.clone()) {
                Err(OpenError::Locked { .. }) => sleep(Duration::from_millis(5)).await,
                opened => break opened.unwrap(),
            }
        };
        self.store = Some(Arc::new(store));
    }
}

/// The sync of the disk lies between what a worker takes and its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_that_is_dropped_gives_back_what_it_took() {
    let folder = Folder::new();
    let store = EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap();
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(enqueue(&store, request()).await.id);
    }
    for round in 0..40 {
        let fetch = timeout(Duration::from_micros(200 * round), store.fetch("", 1)).await;
        if let Ok(fetched) = fetch {
            let outcome = Outcome::Retry {
                after: Duration::ZERO,
                counts: false,
            };
            for fetched in fetched.unwrap() {
                assert!(finish(&store, fetched, outcome.clone()).await);
            }
        }
    }
    // The last one that was dropped may not be back yet.
    let mut order = Vec::new();
    while order.len() < ids.len() {
        let fetched = fetch_next(&store).await;
        assert_eq!(fetched.lease.attempt(), 1);
        order.push(fetched.lease.id());
    }
    order.sort();
    ids.sort();
    assert_eq!(order, ids);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_request_keeps_its_level_when_the_levels_change() {
    let folder = Folder::new();
    let open = |names: &[&str]| {
        let levels = PriorityLevels::new(names.iter().copied(), names[0]).unwrap();
        let order = WaitingRoomConfig::default().levels(levels);
        EmbeddedStore::open(folder.path(), StoreConfig::default().order(order)).unwrap()
    };
    let store = open(&["high", "normal", "batch"]);
    let mut ids = Vec::new();
    for level in [2, 1, 0] {
        let request = request_with(|request| request.level = level);
        ids.push(enqueue(&store, request).await.id);
    }
    drop(store);
    let store = open(&["urgent", "high", "batch"]);
    for (id, level) in ids.iter().zip([2, 2, 1]) {
        assert_eq!(store.get(*id).await.unwrap().unwrap().level, level);
    }
    assert_eq!(run_all(&store).await, [ids[2], ids[0], ids[1]]);
    for (id, level) in ids.iter().zip([2, 2, 1]) {
        assert_eq!(store.get(*id).await.unwrap().unwrap().level, level);
    }
}

/// Returns the number of folders in which the database keeps tables.
fn tables(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("log/keyspaces"))
        .unwrap()
        .count()
}

#[tokio::test(start_paused = true)]
async fn forgotten_requests_leave_the_disk() {
    let folder = Folder::new();
    let config = StoreConfig::default().retention(Duration::from_secs(10));
    let mut left = Vec::new();
    for _ in 0..3 {
        let store = EmbeddedStore::open(folder.path(), config.clone()).unwrap();
        let id = enqueue(&store, request()).await.id;
        store.cancel(id).await.unwrap();
        let with_request = tables(folder.path());
        // Longer than the segment of the request.
        tokio::time::sleep(Duration::from_secs(130)).await;
        store.remove("key").await.unwrap();
        drop(store);
        left.push(tables(folder.path()));
        assert!(with_request > left[0] || left.len() == 1);
    }
    // Those that belong to no request.
    assert_eq!(left, [left[0]; 3]);
}

tower_triage_durable::conformance!(Embedded: streams, operate, webhooks, key_values, drain, stored_bytes, crashes);
