//! The embedded store in processes of its own: what is killed has lost nothing that it answered for.
//!
//! A test starts this program again, for one ignored test that is the child's part.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tower_triage_durable::{Drain, Operate};
use tower_triage_durable::{RequestId, RequestStatus, Store, StoreConfig};
use tower_triage_embedded::{EmbeddedStore, OpenError};

use crate::embedded::Folder;
use tower_triage_durable::conformance::{fetch_one, finish, listing, ok, request};

/// The folder, for the child.
pub(crate) const FOLDER: &str = "DURABLE_TEST_FOLDER";

/// Starts the child's part of a test.
fn start(part: &str, folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", part, "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os(FOLDER).expect("this is the child's part of a test"))
}

/// Returns the rest of a child's lines that begin with `word`.
fn lines(child: &mut Child, word: &'static str) -> impl Iterator<Item = String> + use<> {
    let stdout = BufReader::new(child.stdout.take().unwrap());
    stdout
        .lines()
        .map_while(Result::ok)
        .filter_map(move |line| Some(line.strip_prefix(word)?.trim().to_owned()))
}

#[test]
#[ignore = "a part of acknowledged_requests_survive_kill_9"]
fn stores_until_it_is_killed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Arc::new(EmbeddedStore::open(folder(), StoreConfig::default()).unwrap());
        let clients: Vec<_> = (0..16)
            .map(|nth| tokio::spawn(client(Arc::clone(&store), nth)))
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
}

/// Stores requests, of which some are run, and says what was answered.
async fn client(store: Arc<EmbeddedStore>, nth: u32) {
    loop {
        let stored = store.enqueue(request()).await.unwrap();
        println!("stored {}", stored.info().id);
        if nth == 0 {
            let fetched = fetch_one(&*store).await;
            let id = fetched.lease.id();
            assert!(finish(&*store, fetched, ok("done")).await);
            println!("done {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_requests_survive_kill_9() {
    let folder = Folder::new();
    let (mut stored, mut done): (Vec<RequestId>, Vec<RequestId>) = Default::default();
    // The second time it goes on with what the first has left.
    for round in 1..=2 {
        let mut child = start("processes::stores_until_it_is_killed", folder.path());
        for line in lines(&mut child, "") {
            match line.split_once(' ') {
                Some(("stored", id)) => stored.push(id.parse().unwrap()),
                Some(("done", id)) => done.push(id.parse().unwrap()),
                _ => {}
            }
            if stored.len() == 300 * round {
                // In the midst of the others. The lines that it has written still come.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let store = EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap();
        for id in &stored {
            let info = store.get(*id).await.unwrap();
            let info = info.unwrap_or_else(|| panic!("{id} is lost"));
            assert!(matches!(
                info.status,
                RequestStatus::Queued | RequestStatus::Succeeded | RequestStatus::Failed
            ));
            assert_eq!(store.request(*id).await.unwrap().unwrap(), id.to_string());
        }
        for id in &done {
            let info = store.get(*id).await.unwrap().unwrap();
            assert_eq!(info.status, RequestStatus::Succeeded);
            assert_eq!(store.response(*id).await.unwrap().unwrap(), "done");
        }
    }
    assert!(!done.is_empty());
}

#[tokio::test]
async fn a_second_process_gets_an_error_with_the_folder() {
    let folder = Folder::new();
    let mut child = start("processes::stores_until_it_is_killed", folder.path());
    let mut lines = lines(&mut child, "stored");
    lines.next().expect("the child has the folder open");
    let refused = EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap_err();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused:?}");
    let path = folder.path().display().to_string();
    assert!(refused.to_string().contains(&path), "{refused}");
    child.kill().unwrap();
    child.wait().unwrap();
    // With its process the lock is gone.
    EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_wait_together_share_a_sync() {
    let folder = Folder::new();
    let store = EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap();
    let store = Arc::new(store);
    let clients = (0..64).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for _ in 0..20 {
                store.enqueue(request()).await.unwrap();
            }
        })
    });
    for client in futures_util::future::join_all(clients).await {
        client.unwrap();
    }
    let page = store.list(listing(|listing| listing.limit = 2_000)).await;
    assert_eq!(page.unwrap().requests.len(), 64 * 20);
    // Closed, it gives the folder back though it is still there.
    store.close().await.unwrap();
    let again = EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap();
    let page = again.list(listing(|listing| listing.limit = 2_000)).await;
    assert_eq!(page.unwrap().requests.len(), 64 * 20);
    assert!(store.enqueue(request()).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_are_in_order_after_a_reopen() {
    // 100,000 take more than half a minute without optimizations.
    let waves = if cfg!(debug_assertions) { 1 } else { 10 };
    let folder = Folder::new();
    let store = EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap();
    let store = Arc::new(store);
    for _ in 0..waves {
        let wave = (0..10_000).map(|_| store.enqueue(request()));
        for stored in futures_util::future::join_all(wave).await {
            stored.unwrap();
        }
    }
    let order = async |store: &EmbeddedStore| {
        let mut order = Vec::new();
        let mut after = None;
        loop {
            let page = listing(|listing| {
                listing.limit = 3_000;
                listing.after = after;
            });
            let page = store.list(page).await.unwrap();
            order.extend(page.requests.iter().map(|info| info.id));
            after = order.last().copied();
            if !page.has_more {
                return order;
            }
        }
    };
    let mut before = order(&store).await;
    assert_eq!(before.len(), waves * 10_000);
    drop(store);
    let store = EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap();
    assert_eq!(order(&store).await, before);
    before.reverse();
    let fetched = store.fetch("", 1_000).await.unwrap();
    let fetched: Vec<_> = fetched.iter().map(|fetched| fetched.lease.id()).collect();
    assert_eq!(fetched, before[..1_000]);
    let runnable = store.backlog().await.unwrap().queues[0].runnable;
    assert_eq!(runnable as usize, before.len() - 1_000);
}
