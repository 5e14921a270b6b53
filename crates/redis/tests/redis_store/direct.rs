//! Requests that begin in the same step in which they are stored.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Weak, mpsc};
use std::time::Instant;

use http::{Request, Response};
use http_body_util::Full;
use tokio_util::sync::CancellationToken;
use tower::{Layer, service_fn};
use tower_triage::{Discipline, QueueConfig, QueueLayer, WaitingRoomConfig};
use tower_triage_durable::Operate;
use tower_triage_durable::{
    Enqueued, FreePlace, IdleWorker, OnCrash, Pause, PauseScope, Worker, encode_request,
};

use super::proxy::Proxy;

use super::*;

/// A worker with a number of free places that keeps the requests it gets.
#[derive(Default)]
struct Places {
    free: Arc<AtomicUsize>,
    asked: AtomicUsize,
    begun: Arc<Mutex<Vec<Fetched>>>,
}

/// A slot that is free again when it is dropped.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Places {
    fn of(store: &RedisStore, places: usize) -> Arc<Self> {
        let worker = Arc::new(Self::default());
        worker.free.store(places, SeqCst);
        let weak: Weak<dyn IdleWorker> = Arc::downgrade(&(worker.clone() as Arc<dyn IdleWorker>));
        store.register_worker(weak);
        worker
    }

    fn begun(&self) -> Vec<RequestId> {
        let begun = self.begun.lock().unwrap();
        begun.iter().map(|fetched| fetched.lease.id()).collect()
    }
}

impl IdleWorker for Places {
    fn try_place(&self, _queue: &str) -> Option<FreePlace> {
        self.asked.fetch_add(1, SeqCst);
        let take = |free: usize| free.checked_sub(1);
        self.free.fetch_update(SeqCst, SeqCst, take).ok()?;
        let (slot, begun) = (Slot(self.free.clone()), self.begun.clone());
        Some(Box::new(move |fetched| {
            std::mem::forget(slot);
            begun.lock().unwrap().push(fetched);
        }))
    }
}

/// Tokio's clock stands still until this is dropped. So a store holds its places for as long as Redis takes to answer,
/// and renews no lease. After [`SOON`], it goes on, so that a test that waits in vain fails.
struct StoppedClock(#[expect(dead_code)] mpsc::Sender<()>);

impl StoppedClock {
    fn new() -> Self {
        tokio::time::pause();
        // A paused clock goes on by itself when all tasks wait, but not while a blocking task runs.
        let (stops, stopped) = mpsc::channel();
        tokio::task::spawn_blocking(move || stopped.recv_timeout(SOON));
        Self(stops)
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_request_begins_as_it_is_stored_if_a_place_is_free() {
    let _clock = StoppedClock::new();
    let server = Server::start();
    let store = open(&server, short()).await;
    let places = Places::of(&store, 1);
    let mut new = request("hello");
    (new.tenant, new.level) = (b"a\0b".to_vec(), 1);
    let id = new.id;
    let ended = store.ended(id);
    let stored = store.enqueue(new).await.unwrap();
    assert!(matches!(stored, Enqueued::New(_)));
    let fetched = places.begun.lock().unwrap().pop().unwrap();
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 1));
    assert_eq!(fetched.request, "hello");
    assert_eq!(fetched.info, store.get(id).await.unwrap().unwrap());
    assert_eq!(fetched.info.status, RequestStatus::Starting);
    assert!(store.backlog().await.unwrap().queues.is_empty());
    let depths = store.depths().await.unwrap();
    assert_eq!((depths[0].running, depths[0].queued), (1, 0));

    // Without another place, the next one waits.
    let second = store_one(&store, "").await;
    assert_eq!(store.position(second).await.unwrap(), Some(1));
    store.called(&fetched.lease).await.unwrap();
    assert!(
        store
            .finish(fetched.lease, responded(200, "done"))
            .await
            .unwrap()
    );
    let found = soon(ended).await.unwrap().expect("it is told");
    assert_eq!(found.info.status, RequestStatus::Succeeded);
    assert_eq!(found.response.unwrap(), "done");
}

#[tokio::test]
async fn a_request_waits_behind_those_that_wait() {
    let _clock = StoppedClock::new();
    let server = Server::start();
    let store = open(&server, short()).await;
    let first = store_one(&store, "").await;
    let places = Places::of(&store, 2);
    let second = store_one(&store, "").await;
    assert!(places.begun().is_empty());
    assert_eq!(places.free.load(SeqCst), 2, "the place is free again");
    // Another queue has no one who waits.
    let mut other = request("");
    other.queue = "other".to_owned();
    let id = other.id;
    store.enqueue(other).await.unwrap();
    assert_eq!(places.begun(), [id]);

    let mut taken = Vec::new();
    for _ in 0..2 {
        let fetched = take(&store).await;
        taken.push(fetched.lease.id());
        store
            .finish(fetched.lease, responded(200, ""))
            .await
            .unwrap();
    }
    assert_eq!(taken, [first, second]);
    let third = store_one(&store, "").await;
    assert_eq!(places.begun(), [id, third]);
}

#[tokio::test]
async fn pauses_delays_limits_and_known_requests_take_no_place() {
    let _clock = StoppedClock::new();
    let server = Server::start();
    let config = short().max_running(2).max_running_per_tenant(1).max_size(4);
    let store = open(&server, config).await;
    let places = Places::of(&store, 10);
    let pause = |scope| Pause {
        scope,
        reason: String::new(),
        until: None,
    };
    store
        .pause(pause(PauseScope::Tenant(b"x".to_vec())))
        .await
        .unwrap();
    let paused = store_one(&store, "").await;
    assert!(places.begun().is_empty());
    store
        .resume(PauseScope::Tenant(b"x".to_vec()))
        .await
        .unwrap();
    store.cancel(paused).await.unwrap();

    let mut delayed = request("");
    delayed.delay = Some(SOON);
    store.enqueue(delayed).await.unwrap();
    assert!(places.begun().is_empty());

    let first = request("");
    store.enqueue(first.clone()).await.unwrap();
    assert_eq!(places.begun(), [first.id]);
    // It is known, so it does not begin again.
    let known = store.enqueue(first.clone()).await.unwrap();
    assert!(matches!(known, Enqueued::Known(_)));
    // Its tenant has one that runs.
    let waits = store_one(&store, "").await;
    assert_eq!(places.begun(), [first.id]);
    assert_eq!(store.position(waits).await.unwrap(), Some(1));
    // Nor does one of another queue, because the first may come to run when the limit allows it.
    let mut of_other = request("");
    (of_other.tenant, of_other.queue) = (b"other".to_vec(), "other".to_owned());
    store.enqueue(of_other).await.unwrap();
    assert_eq!(places.begun(), [first.id]);
    let full = store.enqueue(request("")).await.unwrap_err();
    assert!(matches!(full, StoreError::QueueFull { .. }), "{full}");
    assert_eq!(places.free.load(SeqCst), 9);
}

#[tokio::test]
async fn requests_of_one_call_begin_until_the_places_are_used() {
    let _clock = StoppedClock::new();
    let server = Server::start();
    let store = open(&server, short()).await;
    let places = Places::of(&store, 3);
    let new: Vec<_> = (0..6).map(|_| request("")).collect();
    let ids: Vec<_> = new.iter().map(|new| new.id).collect();
    let stored = new.into_iter().map(|new| store.enqueue(new));
    futures_util::future::try_join_all(stored).await.unwrap();
    assert_eq!(places.begun(), ids[..3]);
    for (position, id) in (1..).zip(&ids[3..]) {
        assert_eq!(store.position(*id).await.unwrap(), Some(position));
    }
}

#[tokio::test]
async fn of_several_levels_and_tenants_the_most_urgent_are_fetched() {
    let _clock = StoppedClock::new();
    let server = Server::start();
    let fair = WaitingRoomConfig::default().discipline(Discipline::Fair);
    let store = open(&server, short().order(fair)).await;
    let places = Places::of(&store, 2);
    let new = |level, tenant: &str| {
        let mut new = request("");
        (new.level, new.tenant) = (level, tenant.as_bytes().to_vec());
        new
    };
    for new in [
        [new(2, "x"), new(2, "x"), new(0, "x")],
        [new(1, "x"), new(1, "x"), new(1, "y")],
    ] {
        let wanted = [new[2].id, new[0].id];
        let stored = new.into_iter().map(|new| store.enqueue(new));
        futures_util::future::try_join_all(stored).await.unwrap();
        assert!(places.begun().is_empty());
        let mut taken = Vec::new();
        for _ in 0..3 {
            let fetched = take(&store).await;
            taken.push(fetched.lease.id());
            store
                .finish(fetched.lease, responded(200, ""))
                .await
                .unwrap();
        }
        assert!(taken[..2].contains(&wanted[0]), "it is not the last");
    }
    // There is a place for each of these.
    let two = [new(2, "x"), new(0, "y")];
    let ids = [two[0].id, two[1].id];
    let stored = two.into_iter().map(|new| store.enqueue(new));
    futures_util::future::try_join_all(stored).await.unwrap();
    assert_eq!(places.begun(), ids);
}

#[tokio::test]
async fn a_request_whose_deadline_has_passed_does_not_begin() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let places = Places::of(&store, 1);
    let mut late = request("");
    late.cancel_after = Some(Duration::ZERO);
    let id = late.id;
    store.enqueue(late).await.unwrap();
    soon(store.ended(id)).await.unwrap();
    let info = store.get(id).await.unwrap().unwrap();
    assert_eq!((info.status, info.attempts), (RequestStatus::Aborted, 0));
    assert!(places.begun().is_empty());
}

#[tokio::test]
async fn a_request_that_is_put_back_is_next() {
    let _clock = StoppedClock::new();
    let server = Server::start();
    let store = open(&server, short()).await;
    let places = Places::of(&store, 1);
    let id = store_one(&store, "").await;
    for _ in 0..3 {
        store_one(&store, "").await;
    }
    let fetched = places.begun.lock().unwrap().pop().unwrap();
    let again = Outcome::Retry {
        after: Duration::ZERO,
        counts: false,
    };
    store.finish(fetched.lease, again).await.unwrap();
    assert_eq!(store.position(id).await.unwrap(), Some(1));
    assert_eq!(take(&store).await.lease.id(), id);
}

struct Panics;

impl IdleWorker for Panics {
    fn try_place(&self, _queue: &str) -> Option<FreePlace> {
        panic!("a part of the test");
    }
}

#[tokio::test]
async fn a_worker_that_panics_costs_no_request() {
    let server = Server::start();
    let store = open(&server, short()).await;
    let panics: Arc<dyn IdleWorker> = Arc::new(Panics);
    store.register_worker(Arc::downgrade(&panics));
    let id = store_one(&store, "").await;
    assert_eq!(store.position(id).await.unwrap(), Some(1));
}

#[tokio::test]
async fn a_silent_redis_holds_no_place_for_long() {
    let clock = StoppedClock::new();
    let server = Server::start();
    let proxy = Proxy::to(server.port).await;
    let config = RedisConfig::new(proxy.url()).store(short());
    let store = Arc::new(RedisStore::connect(config).unwrap());
    let places = Places::of(&store, 2);
    let first = store_one(&*store, "").await;
    assert_eq!(places.begun(), [first]);
    proxy.swallow_replies();
    let sent = tokio::spawn({
        let store = store.clone();
        async move { store.enqueue(request("")).await }
    });
    let count = || places.free.load(SeqCst);
    let begin = Instant::now();
    let becomes = |wanted| async move {
        while count() != wanted {
            assert!(begin.elapsed() < SOON);
            tokio::task::yield_now().await;
        }
    };
    becomes(0).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    becomes(1).await;
    assert!(!sent.is_finished(), "Redis is silent");
    drop(clock);
    proxy.cut();
    soon(sent).await.unwrap().unwrap();
    // The next one takes no place, but those after an answer in time do.
    let asked = places.asked.load(SeqCst);
    store_one(&*store, "").await;
    assert_eq!(places.asked.load(SeqCst), asked);
    let later = async {
        while places.asked.load(SeqCst) == asked {
            store_one(&*store, "").await;
        }
    };
    soon(later).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_worker_leaves_no_request_behind() {
    let server = Server::start();
    let on_crash = OnCrash::Retry { max_attempts: 3 };
    let store = Arc::new(open(&server, short().on_crash(on_crash)).await);
    let stored = encode_request(&Request::new(Bytes::new()));
    for _ in 0..8 {
        let forever = service_fn(async |_: Request<Full<Bytes>>| {
            std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
        });
        let worker = Worker::new(store.clone(), forever).on_crash(on_crash);
        let worker = tokio::spawn(worker.run());
        let new = NewRequest::new(RequestId::random().unwrap(), stored.clone());
        let id = new.id;
        store.enqueue(new).await.unwrap();
        worker.abort();
        let _ = worker.await;
        let fetched = take(&store).await;
        assert_eq!(fetched.lease.id(), id);
        store
            .finish(fetched.lease, responded(200, ""))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_dead_process_loses_what_began_as_it_was_stored() {
    let clock = StoppedClock::new();
    let server = Server::start();
    let config = short().on_crash(OnCrash::Retry { max_attempts: 2 });
    let dead = open(&server, config.clone()).await;
    let places = Places::of(&dead, 1);
    let id = store_one(&dead, "again").await;
    assert_eq!(places.begun(), [id]);
    drop((dead, clock));
    let fetched = take(&open(&server, config).await).await;
    assert_eq!((fetched.lease.id(), fetched.lease.attempt()), (id, 2));
    assert_eq!(fetched.request, "again");
}

#[tokio::test]
async fn a_worker_runs_what_begins_as_it_is_stored_and_ends_after_it() {
    let server = Server::start();
    let store = Arc::new(open(&server, short()).await);
    let queue = QueueLayer::new(QueueConfig::new(1));
    let gate = queue.handle().gate().unwrap().clone();
    let goes_on = CancellationToken::new();
    let (called, mut calls) = tokio::sync::mpsc::unbounded_channel();
    let waits = goes_on.clone();
    let service = service_fn(move |_: Request<Full<Bytes>>| {
        called.send(()).unwrap();
        let waits = waits.clone();
        async move {
            waits.cancelled().await;
            Ok::<_, Infallible>(Response::new(Full::from("done")))
        }
    });
    let shutdown = CancellationToken::new();
    let worker = Worker::new(store.clone(), queue.layer(service)).slots(gate.clone());
    let mut worker = tokio::spawn(worker.shutdown(shutdown.clone()).run());
    let stored = encode_request(&Request::new(Bytes::new()));
    let new = || NewRequest::new(RequestId::random().unwrap(), stored.clone());
    // The worker is known to the store as soon as it has begun.
    let first = new();
    let first_id = first.id;
    store.enqueue(first).await.unwrap();
    soon(calls.recv()).await.unwrap();
    assert_eq!(gate.status().running, 1);
    let second = new();
    let second_id = second.id;
    store.enqueue(second).await.unwrap();
    assert_eq!(store.position(second_id).await.unwrap(), Some(1));

    shutdown.cancel();
    let early = tokio::time::timeout(Duration::from_millis(50), &mut worker).await;
    assert!(early.is_err(), "the worker waits for its running request");
    goes_on.cancel();
    soon(worker).await.unwrap();
    let info = store.get(first_id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Succeeded);
    assert_eq!(gate.status().running, 0);
    let info = store.get(second_id).await.unwrap().unwrap();
    assert_eq!(info.status, RequestStatus::Queued);
}
