//! The power goes: the end of the log is cut short, or pages of it were never written.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tower_triage_durable::Drain;
use tower_triage_durable::{RequestId, Store, StoreConfig};
use tower_triage_embedded::EmbeddedStore;

use crate::embedded::Folder;
use tower_triage_durable::conformance::{enqueue, request_with, run_all};

/// The size of each body: larger than a page, so that the system may write it in any order.
const BODY: usize = 10_000;
/// The space at the end of a log that is not written to yet.
const SPACE: usize = 4_096;

async fn store_one(store: &EmbeddedStore) -> RequestId {
    let request = request_with(|request| request.request = Bytes::from(vec![7; BODY]));
    enqueue(store, request).await.id
}

fn open(folder: &Folder) -> EmbeddedStore {
    EmbeddedStore::open(folder.path(), StoreConfig::default()).expect("it opens")
}

/// Returns the log of a store, and what is written in it.
fn log(folder: &Path) -> (PathBuf, Vec<u8>) {
    let files = std::fs::read_dir(folder.join("log")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let log = files.find(|path| path.extension().is_some_and(|extension| extension == "jnl"));
    let log = log.expect("there is a log");
    let mut bytes = std::fs::read(&log).unwrap();
    let written = bytes.iter().rposition(|byte| *byte != 0);
    bytes.truncate(written.map_or(0, |last| last + 1));
    (log, bytes)
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => copy(&from, &to),
            // Both are large: the reserve is made anew, the log is written by the test.
            false if to.ends_with("reserve") || to.extension().is_some_and(|of| of == "jnl") => {}
            false => {
                std::fs::copy(&from, &to).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_log_opens_without_its_last_batch() {
    let folder = Folder::new();
    let store = open(&folder);
    let mut stored = Vec::new();
    for _ in 0..3 {
        stored.push(store_one(&store).await);
    }
    let from = log(folder.path()).1.len();
    let acknowledged = std::fs::read(folder.path().join("acknowledged")).unwrap();
    let last = store_one(&store).await;
    let (path, whole) = log(folder.path());
    let to = whole.len();
    assert!(to > from + BODY, "the last request is between these");
    let cut = |at: usize| whole[..at].to_vec();
    let zeroed = |zeros: std::ops::Range<usize>| {
        let mut log = whole.clone();
        log[zeros].fill(0);
        log.resize(to + SPACE, 0);
        log
    };
    let middle = usize::midpoint(from, to);
    let torn = [
        cut(from),
        cut(from + 3),
        cut(middle),
        cut(to - 1),
        zeroed(from + 20..to),
        zeroed(middle..to),
        // The end is there, and a page before it is not.
        zeroed(middle..middle + 4_096),
    ];
    // As it is while the store is open: nobody has closed it.
    for (nth, torn) in torn.into_iter().enumerate() {
        let copied = Folder::new();
        copy(folder.path(), copied.path());
        let log = copied.path().join("log").join(path.file_name().unwrap());
        std::fs::write(log, torn).unwrap();
        // The power goes before the last request is acknowledged.
        std::fs::write(copied.path().join("acknowledged"), &acknowledged).unwrap();

        let store = open(&copied);
        assert_eq!(store.get(last).await.unwrap(), None, "{nth}");
        for id in &stored {
            let body = store.request(*id).await.unwrap();
            let body = body.unwrap_or_else(|| panic!("{nth}: it was answered for"));
            assert_eq!(body.len(), BODY, "{nth}");
        }
        // It goes on from there, also after another opening.
        let next = store_one(&store).await;
        drop(store);
        let order = run_all(&open(&copied)).await;
        assert_eq!(order, [&stored[..], &[next]].concat(), "{nth}");
    }
}
