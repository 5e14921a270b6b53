//! Files of the embedded store are damaged while it is closed. It must refuse to open, unless everything is still there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tower_triage_durable::{Drain, KeyValues};
use tower_triage_durable::{Outcome, RequestId, RequestStatus, Store, StoreConfig};
use tower_triage_embedded::{EmbeddedStore, OpenError};

use crate::embedded::Folder;
use tower_triage_durable::conformance::{
    enqueue, fetch_one, finish, request, request_with, run_all,
};

/// The files of a store, without the empty ends of its logs.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A small store, as it was while it was open, and what it acknowledged.
struct Small {
    files: Files,
    /// A folder with the reserve, which is too large to copy for each case.
    original: Folder,
    requests: Vec<(RequestId, RequestStatus)>,
}

impl Small {
    async fn new() -> Self {
        let original = Folder::new();
        let store = EmbeddedStore::open(original.path(), StoreConfig::default()).unwrap();
        let mut requests = Vec::new();
        for nth in 0..8 {
            let body = Bytes::from(format!("the body of request {nth}"));
            let request = request_with(|request| request.request = body);
            requests.push((enqueue(&store, request).await.id, RequestStatus::Queued));
        }
        for request in requests.iter_mut().take(2) {
            let fetched = fetch_one(&store).await;
            let response = Bytes::from_static(b"the response");
            let outcome = Outcome::Responded {
                status: 200,
                response,
            };
            assert!(finish(&store, fetched, outcome).await);
            request.1 = RequestStatus::Succeeded;
        }
        store
            .put("key", Bytes::from_static(b"value"))
            .await
            .unwrap();
        let files = read(original.path());
        Self {
            files,
            original,
            requests,
        }
    }

    /// Writes the files to a new folder, with one of them changed. `None` leaves the file out.
    fn with(&self, changed: &Path, bytes: Option<&[u8]>) -> Folder {
        let folder = Folder::new();
        for (path, whole) in &self.files {
            let bytes = match path == changed {
                true => bytes,
                false => Some(&whole[..]),
            };
            let to = folder.path().join(path);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            if let Some(bytes) = bytes {
                std::fs::write(to, bytes).unwrap();
            }
        }
        std::fs::create_dir_all(folder.path().join("log/keyspaces/0/tables")).unwrap();
        let reserve = self.original.path().join("reserve");
        std::fs::hard_link(reserve, folder.path().join("reserve")).unwrap();
        folder
    }

    /// Asserts that a damaged store is refused, or has everything. Returns `true` if it was opened.
    async fn loses_nothing(&self, changed: &Path, bytes: Option<&[u8]>, what: &str) -> bool {
        let folder = self.with(changed, bytes);
        let path = changed.display();
        let store = match EmbeddedStore::open(folder.path(), StoreConfig::default()) {
            Ok(store) => store,
            Err(why) => {
                assert!(why.to_string().len() > 20, "{path}, {what}: {why}");
                return false;
            }
        };
        for (id, status) in &self.requests {
            // An error is not silent.
            let Ok(info) = store.get(*id).await else {
                return true;
            };
            let found = info.map(|info| info.status);
            assert_eq!(found, Some(*status), "{path}, {what}: the status of {id}");
            let Ok(body) = store.request(*id).await else {
                return true;
            };
            let body = body.map_or(0, |body| body.len());
            assert_eq!(body, 21, "{path}, {what}: the body of {id}");
            if *status == RequestStatus::Succeeded {
                let Ok(response) = store.response(*id).await else {
                    return true;
                };
                assert!(response.is_some(), "{path}, {what}: the response of {id}");
            }
        }
        if let Ok(value) = store.value("key").await {
            assert!(value.is_some(), "{path}, {what}: the value");
        }
        true
    }
}

/// Reads the files below a folder. Leaves out the lock and the reserve, which hold no data.
fn read(folder: &Path) -> Files {
    let mut files = Files::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_owned();
            if name == Path::new("lock") || name == Path::new("reserve") {
                continue;
            }
            let mut bytes = std::fs::read(&path).unwrap();
            if path.extension().is_some_and(|extension| extension == "jnl") {
                let written = bytes.iter().rposition(|byte| *byte != 0);
                bytes.truncate(written.map_or(0, |last| last + 1));
            }
            files.insert(name, bytes);
        }
    }
    files
}

/// Returns the cases to try: all of them if `DAMAGE=all` is set, and else about `count`, spread evenly.
fn sample(cases: usize, count: usize) -> impl Iterator<Item = usize> {
    let step = match std::env::var("DAMAGE").is_ok_and(|all| all == "all") {
        true => 1,
        false => (cases / count).max(1),
    };
    (0..cases).step_by(step)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_byte_loses_nothing_silently() {
    let small = Small::new().await;
    for (path, whole) in &small.files {
        for at in sample(whole.len(), 12) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            let what = format!("byte {at} of {} is flipped", whole.len());
            small.loses_nothing(path, Some(&bytes), &what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sector_of_zeros_loses_nothing_silently() {
    let small = Small::new().await;
    for (path, whole) in &small.files {
        for sector in sample(whole.len().div_ceil(512), 12) {
            let mut bytes = whole.clone();
            let to = whole.len().min(512 * (sector + 1));
            bytes[512 * sector..to].fill(0);
            let what = format!("sector {sector} has zeros");
            small.loses_nothing(path, Some(&bytes), &what).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_cut_or_removed_loses_nothing_silently() {
    let small = Small::new().await;
    for (path, whole) in &small.files {
        for length in sample(whole.len(), 6) {
            let what = format!("cut to {length} of {}", whole.len());
            small
                .loses_nothing(path, Some(&whole[..length]), &what)
                .await;
        }
        small.loses_nothing(path, None, "removed").await;
    }
    // Undamaged, it opens.
    assert!(small.loses_nothing(Path::new(""), None, "whole").await);
}

/// Returns the places in a log where a batch ends.
fn ends_of_batches(log: &[u8]) -> Vec<usize> {
    let magic = b"FJL\x03";
    let ends = log.windows(magic.len()).enumerate();
    ends.filter_map(|(at, bytes)| (bytes == magic).then_some(at + magic.len()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_cut_is_found_without_the_count_of_commits() {
    let small = Small::new().await;
    let log = Path::new("log/0.jnl");
    let whole = &small.files[log];
    let ends = ends_of_batches(whole);
    assert!(ends.len() > 8, "{ends:?}");
    let open = |folder: &Folder| EmbeddedStore::open(folder.path(), StoreConfig::default());
    for end in ends.iter().rev().take(3) {
        let longer = [0; 4_096];
        for acknowledged in [None, Some(&b""[..]), Some(b"0\n0\n"), Some(&longer)] {
            let folder = small.with(log, Some(&whole[..*end]));
            let count = folder.path().join("acknowledged");
            match acknowledged {
                None => std::fs::remove_file(count).unwrap(),
                Some(text) => std::fs::write(count, text).unwrap(),
            }
            for _ in 0..2 {
                let refused = open(&folder).unwrap_err();
                assert!(refused.to_string().contains("`acknowledged`"), "{refused}");
            }
            if *end == whole.len() {
                let salvaged = EmbeddedStore::salvage(folder.path(), StoreConfig::default());
                assert_eq!(run_all(&salvaged.unwrap()).await.len(), 6);
                open(&folder).unwrap();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_without_its_oldest_log_is_refused() {
    let small = Small::new().await;
    let log = Path::new("log/0.jnl");
    let whole = &small.files[log];
    let middle = ends_of_batches(whole)[4];
    for is_lost in [false, true] {
        let folder = small.with(log, (!is_lost).then_some(&whole[..middle]));
        std::fs::write(folder.path().join("log/1.jnl"), &whole[middle..]).unwrap();
        let opened = EmbeddedStore::open(folder.path(), StoreConfig::default());
        assert_eq!(opened.is_err(), is_lost, "{opened:?}");
        match opened {
            Ok(store) => assert_eq!(run_all(&store).await.len(), 6),
            Err(why) => assert!(matches!(why, OpenError::Damaged { .. }), "{why}"),
        }
    }
}

/// Returns the folder in which the damaged files of a store were kept.
fn kept(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names = entries.map(|entry| entry.unwrap().path());
    let is_kept = |path: &PathBuf| path.to_string_lossy().contains("log.damaged-");
    names.find(is_kept).expect("the files are kept")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn salvaged_store_has_what_is_whole_and_goes_on() {
    let small = Small::new().await;
    let log = Path::new("log/0.jnl");
    let whole = &small.files[log];
    // In the body of the fifth request, which is in the middle of the log.
    let body = b"the body of request 4";
    let at = whole.windows(body.len()).position(|at| at == body).unwrap();
    let mut bytes = whole.clone();
    bytes[at..at + 4].fill(0);
    let folder = small.with(log, Some(&bytes));
    let open = || EmbeddedStore::open(folder.path(), StoreConfig::default());
    for _ in 0..2 {
        let refused = open().unwrap_err();
        assert!(matches!(refused, OpenError::Damaged { .. }), "{refused:?}");
        assert!(
            refused.to_string().contains("8 whole commits follow"),
            "{refused}"
        );
    }

    let salvaged = EmbeddedStore::salvage(folder.path(), StoreConfig::default()).unwrap();
    assert_eq!(
        std::fs::read(kept(folder.path()).join("0.jnl")).unwrap(),
        bytes
    );
    for (nth, (id, status)) in small.requests.iter().enumerate() {
        let found = salvaged.get(*id).await.unwrap();
        let expected = (nth != 4).then_some(*status);
        assert_eq!(found.map(|info| info.status), expected, "request {nth}");
    }
    assert!(salvaged.value("key").await.unwrap().is_some());
    let new = enqueue(&salvaged, request()).await.id;
    drop(salvaged);

    let store = open().unwrap();
    let waiting = small.requests.iter().skip(2).map(|(id, _)| *id);
    let mut expected: Vec<_> = waiting.collect();
    expected.remove(2);
    expected.push(new);
    assert_eq!(run_all(&store).await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn salvaged_store_does_without_a_keyspace_that_is_damaged() {
    let small = Small::new().await;
    let list = Path::new("log/keyspaces/4/v0");
    assert!(small.files.contains_key(list), "{:?}", small.files.keys());
    let folder = small.with(list, None);
    let refused = EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap_err();
    assert!(refused.to_string().contains("keyspaces/4"), "{refused}");
    let store = EmbeddedStore::salvage(folder.path(), StoreConfig::default()).unwrap();
    enqueue(&store, request()).await;
    drop(store);
    EmbeddedStore::open(folder.path(), StoreConfig::default()).unwrap();
}
