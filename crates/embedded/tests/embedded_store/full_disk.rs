//! The embedded store on a disk that is full: a small one in memory, which only the child's process sees.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use tower_triage_durable::{Drain, KeyValues};
use tower_triage_durable::{
    Enqueued, NewRequest, Outcome, RequestId, RequestStatus, Store, StoreConfig, StoreError,
};
use tower_triage_embedded::EmbeddedStore;

use crate::embedded::Folder;
use crate::processes::{FOLDER, folder};
use tower_triage_durable::conformance::request_with;

/// Mounts a small disk on the folder, and goes on as the program that is named after it.
const ON_A_SMALL_DISK: &str =
    r#"mount -t tmpfs -o size="$0" tmpfs "$DURABLE_TEST_FOLDER" && exec "$@""#;

/// Runs the child's part of a test on a disk of this size. Returns `false` where the system does not let it.
fn run_on_a_disk_of(size: &str, part: &str) -> bool {
    let folder = Folder::new();
    let sandbox = |program: &[&std::ffi::OsStr]| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", ON_A_SMALL_DISK, size]);
        command.args(program).env(FOLDER, folder.path()).status()
    };
    if !sandbox(&["true".as_ref()]).is_ok_and(|status| status.success()) {
        eprintln!("skipped: the system has no user namespaces, so no small disk could be mounted");
        return false;
    }
    let this = std::env::current_exe().unwrap();
    let arguments = [this.as_os_str(), "--exact".as_ref(), part.as_ref()];
    let more = ["--ignored", "--nocapture"].map(AsRef::as_ref);
    let status = sandbox(&[&arguments[..], &more[..]].concat()).unwrap();
    assert!(status.success(), "{part}: {status}");
    true
}

/// The size of a response: all of them take most of what is kept back.
const RESPONSE: usize = 600 * 1024;

fn large() -> NewRequest {
    request_with(|request| request.request = Bytes::from(vec![7; 256 * 1024]))
}

/// Stores requests until one is refused, and returns the names of the stored ones and of the refused one.
async fn fill(store: &EmbeddedStore) -> (Vec<RequestId>, RequestId) {
    let mut stored = Vec::new();
    for _ in 0..1_000 {
        let request = large();
        let id = request.id;
        match store.enqueue(request).await {
            Ok(_) => stored.push(id),
            Err(StoreError::StorageFull(_)) => return (stored, id),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk is not full");
}

/// The longest wait until the store takes requests again, once there is space.
const LIMIT: Duration = Duration::from_secs(60);

/// Stores a request as soon as the store takes one, and returns its name.
async fn enqueue_when_possible(store: &EmbeddedStore) -> RequestId {
    loop {
        let request = large();
        let id = request.id;
        match store.enqueue(request).await {
            Ok(_) => return id,
            Err(StoreError::StorageFull(_)) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_full_disk_refuses_new_requests_and_loses_none() {
    run_on_a_disk_of("160m", "full_disk::fills_the_disk_and_frees_it");
}

#[test]
#[ignore = "a part of a_full_disk_refuses_new_requests_and_loses_none"]
fn fills_the_disk_and_frees_it() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let folder = folder();
        let ballast = folder.join("ballast");
        std::fs::write(&ballast, vec![1; 64 * 1024 * 1024]).unwrap();
        let store = EmbeddedStore::open(folder.join("store"), StoreConfig::default()).unwrap();
        for _ in 0..20 {
            store.enqueue(large()).await.unwrap();
        }
        let running = store.fetch("", 20).await.unwrap();
        let (mut stored, refused) = fill(&store).await;
        assert!(!stored.is_empty());
        println!("{} requests are stored", stored.len());
        // Others take what is left.
        let eaten = folder.join("eaten");
        let mut eat = std::fs::File::create(&eaten).unwrap();
        while eat.write_all(&[1; 4096]).is_ok() {}
        refuses_but_settles(&store, &stored, running.clone()).await;

        // An open file takes up space even when it is removed.
        drop(eat);
        std::fs::remove_file(&eaten).unwrap();
        std::fs::remove_file(&ballast).unwrap();
        let taken_again = tokio::time::timeout(LIMIT, enqueue_when_possible(&store));
        stored.push(taken_again.await.expect("there is space again"));
        assert_eq!(store.get(refused).await.unwrap(), None);
        drop(store);
        is_all_there(&folder.join("store"), &stored, refused, &running).await;
    });
}

async fn refuses_but_settles(
    store: &EmbeddedStore,
    stored: &[RequestId],
    running: Vec<tower_triage_durable::Fetched>,
) {
    let full = store.put("key", Bytes::from_static(b"value")).await;
    assert!(matches!(full, Err(StoreError::StorageFull(_))), "{full:?}");
    let known = NewRequest::new(stored[0], Bytes::new());
    let known = store.enqueue(known).await.unwrap();
    assert!(matches!(known, Enqueued::Known(_)));
    for fetched in running {
        let outcome = Outcome::Responded {
            status: 200,
            response: Bytes::from(vec![9; RESPONSE]),
        };
        assert!(store.finish(fetched.lease, outcome).await.unwrap());
    }
    let canceled = store.cancel(stored[0]).await.unwrap().unwrap();
    assert_eq!(canceled.status, RequestStatus::Canceled);
}

async fn is_all_there(
    path: &Path,
    stored: &[RequestId],
    refused: RequestId,
    ended: &[tower_triage_durable::Fetched],
) {
    let store = EmbeddedStore::open(path, StoreConfig::default()).unwrap();
    for id in stored {
        let body = store.request(*id).await.unwrap();
        assert_eq!(body.expect("it is stored").len(), 256 * 1024);
    }
    for fetched in ended {
        let info = store.get(fetched.lease.id()).await.unwrap().unwrap();
        assert_eq!(info.status, RequestStatus::Succeeded);
        let response = store.response(fetched.lease.id()).await.unwrap();
        assert_eq!(response.expect("it is stored").len(), RESPONSE);
    }
    assert_eq!(store.get(refused).await.unwrap(), None);
    let mut order = Vec::new();
    for fetched in store.fetch("", 1_000).await.unwrap() {
        order.push(fetched.lease.id());
    }
    assert_eq!(order, stored[1..]);
}
