use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::archive::Archive;
use super::clock::{Boot, Machine};
use super::storage::{Keys, Op, Order, Table, Visit};
use super::write::{Write, ops};
use super::*;
use tower_triage::PriorityLevels;
use tower_triage_durable::{NewRequest, Outcome, RequestStatus, Store, StoreError};
use tower_triage_durable::{Operate, Streams};

/// A database that fails to write, after it has written all the same.
#[derive(Default)]
struct Faulty {
    memory: Memory,
    /// The number of writes that fail from now on.
    failures: AtomicU32,
    /// `true` if bodies and responses can't be read.
    is_unreadable: AtomicBool,
}

impl Storage for Faulty {
    fn commit(&self, ops: Vec<Op>) -> Result<(), StoreError> {
        self.memory.commit(ops)?;
        let one_less = |failures: u32| failures.checked_sub(1);
        match self.failures.fetch_update(Relaxed, Relaxed, one_less) {
            Ok(_) => Err(StoreError::StorageFull("torn".to_owned())),
            Err(_) => Ok(()),
        }
    }

    fn segments(&self) -> Result<Vec<u32>, StoreError> {
        self.memory.segments()
    }

    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if matches!(table, Table::Bytes(_)) && self.is_unreadable.load(Relaxed) {
            return Err(StoreError::Unavailable("a damaged block".to_owned()));
        }
        self.memory.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        keys: Keys<'_>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.memory.scan(table, keys, order, visit)
    }
}

fn open(storage: &Arc<Faulty>) -> EmbeddedStore {
    open_on(storage, &Machine::now())
}

fn open_on(storage: &Arc<Faulty>, machine: &Machine) -> EmbeddedStore {
    let opening = RequestId::random().unwrap();
    let storage = Arc::clone(storage) as Arc<dyn Storage>;
    let path = Path::new("");
    EmbeddedStore::start(path, StoreConfig::default(), opening, storage, machine).unwrap()
}

fn new(id: u128) -> NewRequest {
    NewRequest::new(RequestId::from_bits(id), Bytes::new())
}

#[tokio::test]
async fn what_a_full_disk_refused_counts_towards_no_quota() {
    let storage = Arc::new(Faulty::default());
    let store = open(&storage);
    let mut request = new(1);
    request.request = Bytes::from_static(b"body");
    storage.failures.store(1, Relaxed);
    assert!(store.enqueue(request.clone()).await.is_err());
    assert_eq!(store.stored_bytes(b"").await.unwrap(), 0);
    store.enqueue(request).await.unwrap();
    let lease = store.fetch("", 1).await.unwrap().remove(0).lease;
    storage.failures.store(1, Relaxed);
    let piece = Bytes::from_static(b"piece");
    assert!(store.append(&lease, piece).await.is_err());
    assert_eq!(store.stored_bytes(b"").await.unwrap(), 4);
    drop(store);
    let store = open(&storage);
    assert_eq!(store.stored_bytes(b"").await.unwrap(), 4);
}

#[tokio::test]
async fn a_request_that_could_not_be_written_down_never_was() {
    let storage = Arc::new(Faulty::default());
    let store = open(&storage);
    store.enqueue(new(1)).await.unwrap();
    let fetched = store.fetch("", 1).await.unwrap().remove(0);
    // All come into one batch at the most, and each that has something new fails.
    storage.failures.store(1, Relaxed);
    let failed = store.enqueue(new(2)).await;
    assert!(matches!(failed, Err(StoreError::StorageFull(_))));
    let id = RequestId::from_bits(2);
    assert_eq!(store.get(id).await.unwrap(), None);
    assert!(
        Archive(&*storage, &PriorityLevels::default())
            .by_id(id)
            .unwrap()
            .is_none()
    );
    assert!(store.fetch("", 9).await.unwrap().is_empty());
    // An outcome is written down until it is.
    storage.failures.store(2, Relaxed);
    let outcome = Outcome::Responded {
        status: 200,
        response: Bytes::from_static(b"answer"),
    };
    assert!(store.finish(fetched.lease, outcome).await.unwrap());
    assert_eq!(storage.failures.load(Relaxed), 0);
    store.enqueue(new(2)).await.unwrap();
    drop(store);

    let store = open(&storage);
    let first = store.get(RequestId::from_bits(1)).await.unwrap().unwrap();
    assert_eq!(first.status, RequestStatus::Succeeded);
    assert_eq!(store.fetch("", 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_that_ended_in_its_failed_write_leaves_no_rows() {
    let storage = Arc::new(Faulty::default());
    let store = open(&storage);
    let mut late = new(1);
    late.cancel_after = Some(Duration::ZERO);
    storage.failures.store(1, Relaxed);
    assert!(store.enqueue(late.clone()).await.is_err());
    assert_eq!(store.get(late.id).await.unwrap(), None);
    let mut rows = Vec::new();
    for segment in storage.segments().unwrap() {
        for table in [Table::Rows(segment), Table::Bytes(segment)] {
            let all = (Bound::Unbounded, Bound::Unbounded);
            let mut visit = |key: &[u8], _: &[u8]| {
                rows.push(key.to_vec());
                Ok(true)
            };
            storage
                .scan(table, all, Order::Ascending, &mut visit)
                .unwrap();
        }
    }
    assert_eq!(rows, Vec::<Vec<u8>>::new());
    assert_eq!(store.totals().await.unwrap(), []);
    // The second try is stored, and its end is counted.
    store.enqueue(late.clone()).await.unwrap();
    let info = store.get(late.id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Aborted);
    assert_eq!(store.totals().await.unwrap()[0].count, 1);
}

#[tokio::test]
async fn a_failed_write_refuses_what_is_new_and_keeps_what_ends() {
    let storage = Arc::new(Faulty::default());
    let store = Arc::new(open(&storage));
    for id in 0..20 {
        store.enqueue(new(id)).await.unwrap();
    }
    // They wait for the thread together: whichever batches they come into, each cancellation holds.
    storage.failures.store(3, Relaxed);
    let calls = (0..20).map(|id| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let stored = store.enqueue(new(100 + id)).await;
            let canceled = store.cancel(RequestId::from_bits(id)).await.unwrap();
            (id, stored.is_ok(), canceled.unwrap().status)
        })
    });
    let mut stored = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        let (id, is_stored, canceled) = call.await.unwrap();
        assert_eq!(canceled, RequestStatus::Canceled);
        stored.extend(is_stored.then_some(100 + id));
    }
    drop(store);
    let store = open(&storage);
    let fetched = store.fetch("", 99).await.unwrap();
    let mut ids: Vec<_> = fetched
        .iter()
        .map(|fetched| fetched.lease.id().bits())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, stored);
}

#[test]
fn a_body_that_can_not_be_read_stops_no_other_write() {
    let storage = Faulty::default();
    storage.is_unreadable.store(true, Relaxed);
    let drop_bytes = Write::DropBytes {
        segment: 1,
        kept: vec![7],
    };
    let key = "key".to_owned();
    let levels = PriorityLevels::default();
    let made = ops(
        &[drop_bytes, Write::Remove { key }],
        Archive(&storage, &levels),
    );
    let made = made.unwrap();
    assert!(
        matches!(made[..], [Op::Remove(Table::Values, _)]),
        "{made:?}"
    );
}

#[tokio::test]
async fn a_clock_that_was_corrected_before_a_restart_forgets_and_starts_nothing() {
    let storage = Arc::new(Faulty::default());
    let hour = Duration::from_secs(60 * 60);
    let day = 24 * hour;
    let wrong = |uptime, behind| Machine {
        system: SystemTime::now() - behind,
        boot: Some(Boot {
            id: "a run of the machine".to_owned(),
            uptime,
        }),
    };
    let store = open_on(&storage, &wrong(hour, 300 * day));
    store.enqueue(new(1)).await.unwrap();
    let fetched = store.fetch("", 1).await.unwrap().remove(0);
    let outcome = Outcome::Responded {
        status: 200,
        response: Bytes::new(),
    };
    assert!(store.finish(fetched.lease, outcome).await.unwrap());
    let mut later = new(2);
    later.delay = Some(Duration::from_secs(30 * 60));
    store.enqueue(later).await.unwrap();
    let before = store.now();
    drop(store);

    let store = open_on(
        &storage,
        &wrong(hour + Duration::from_secs(2), Duration::ZERO),
    );
    let passed = store.now().duration_since(before).unwrap();
    assert!(passed < hour, "{passed:?} have passed");
    let shown = store.system_time(store.now());
    let off = SystemTime::now().duration_since(shown).unwrap_or_default();
    assert!(off < hour, "it shows a time {off:?} ago");
    let ended = store.get(RequestId::from_bits(1)).await.unwrap();
    let ended = ended.expect("it ended just now");
    assert_eq!(ended.status, RequestStatus::Succeeded);
    let age = SystemTime::now().duration_since(ended.created).unwrap();
    assert!(age < hour, "it says {age:?}");
    assert!(
        store.fetch("", 1).await.unwrap().is_empty(),
        "it may not start yet"
    );
    let delayed = store.get(RequestId::from_bits(2)).await.unwrap().unwrap();
    let wait = delayed
        .not_before
        .unwrap()
        .duration_since(SystemTime::now());
    assert!(wait.unwrap() > Duration::from_secs(20 * 60));
    drop(store);

    let store = open_on(&storage, &wrong(2 * hour, Duration::ZERO));
    assert_eq!(store.fetch("", 1).await.unwrap().len(), 1);
}
