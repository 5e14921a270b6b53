//! The main task of a worker, which follows the backlog of the store and runs a task for each queue in it.

use std::collections::HashMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tower_service::Service;

use super::Shared;
use super::direct::{self, Idle};
use super::queue::Queue;
use crate::{Backlog, BacklogChange, IdleWorker, QueueHead};

/// The most urgent request of a queue, as one reading of the backlog showed it.
#[derive(Debug, Default)]
pub(super) struct Heads {
    /// The number of the reading that showed this head.
    pub(super) round: u64,
    /// The head of the queue, or `None` if all requests of the queue had to wait.
    pub(super) head: Option<QueueHead>,
}

/// A handle with which the tasks of the queues ask for another reading of the backlog.
#[derive(Clone, Default)]
pub(super) struct Refresh(Arc<Round>);

#[derive(Default)]
struct Round {
    /// The number of readings that have begun.
    begun: AtomicU64,
    /// A notification that wakes the main task when a queue asks for a reading.
    is_wanted: Notify,
}

impl Refresh {
    /// Asks for a reading that begins from now on, and returns the number of the latest one that began before.
    pub(super) fn ask(&self) -> u64 {
        let begun = self.begun();
        self.0.is_wanted.notify_one();
        begun
    }

    /// Returns the number of the latest reading that has begun.
    pub(super) fn begun(&self) -> u64 {
        // SeqCst keeps the counter in step with the calls to the store. A reading with a higher number begins after
        // this load, so it sees all earlier effects on the store.
        self.0.begun.load(SeqCst)
    }

    /// Begins a reading and returns its number.
    fn begin(&self) -> u64 {
        self.0.begun.fetch_add(1, SeqCst) + 1
    }
}

/// Runs a worker until its shutdown, and then until its last attempt has ended.
pub(super) async fn dispatch<S, B>(shared: Arc<Shared>, service: S)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let refresh = Refresh::default();
    let mut queues = Queues {
        shared: Arc::clone(&shared),
        service,
        refresh: refresh.clone(),
        heads: HashMap::new(),
        names: HashMap::new(),
        tasks: JoinSet::new(),
    };
    let (started, direct) = unbounded_channel();
    let idle: Arc<dyn IdleWorker> = Arc::new(Idle {
        shared: Arc::clone(&shared),
        service: Mutex::new(queues.service.clone()),
        started,
    });
    shared.store.register_worker(Arc::downgrade(&idle));
    let mut direct_task = JoinSet::new(); // a `JoinSet` aborts its task when the worker is dropped
    direct_task.spawn(direct::run(Arc::clone(&shared), direct));
    while !shared.shutdown.is_cancelled() {
        let round = refresh.begin();
        let look = shared.health.until_done(|| shared.store.backlog());
        let backlog = tokio::select! {
            backlog = look => backlog,
            () = shared.shutdown.cancelled() => break,
        };
        let (mut version, next) = (backlog.version, backlog.next);
        queues.show_all(round, backlog);
        // A change that brings its new head along spares another reading. Any other event ends this loop and begins
        // one.
        while let BacklogChange::NewHead { version: new, head } = tokio::select! {
            () = shared.shutdown.cancelled() => BacklogChange::Any,
            () = refresh.0.is_wanted.notified() => BacklogChange::Any,
            change = shared.health.until_done(|| shared.store.changed(version)) => change,
            () = sleep_until(next) => BacklogChange::Any,
            Some(ended) = queues.tasks.join_next_with_id() => queues.on_end(ended),
        } {
            version = new;
            queues.show_new(refresh.begin(), *head);
        }
    }
    drop(idle);
    while queues.tasks.join_next().await.is_some() {}
    while direct_task.join_next().await.is_some() {}
}

/// The tasks of all queues that have a backlog or have requests that still run.
struct Queues<S> {
    shared: Arc<Shared>,
    service: S,
    refresh: Refresh,
    /// The senders that show each queue its head, by the name of the queue.
    heads: HashMap<Arc<str>, watch::Sender<Heads>>,
    /// The name of the queue that each task serves.
    names: HashMap<Id, Arc<str>>,
    tasks: JoinSet<()>,
}

impl<S, B> Queues<S>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    /// Shows each queue its new head. A queue that is missing in the backlog loses its former head.
    fn show_all(&mut self, round: u64, backlog: Backlog) {
        let known = self.heads.keys();
        let mut heads: HashMap<Arc<str>, Option<QueueHead>> =
            known.map(|name| (Arc::clone(name), None)).collect();
        for head in backlog.queues {
            heads.insert(head.info.queue.as_str().into(), Some(head));
        }
        for (name, head) in heads {
            self.show(name, Heads { round, head });
        }
    }

    /// Shows a queue its new head, unless a reading has shown it before.
    fn show_new(&mut self, round: u64, head: QueueHead) {
        let name: Arc<str> = head.info.queue.as_str().into();
        let known = self.heads.get(&name).map(watch::Sender::borrow);
        let known = known.and_then(|heads| heads.head.as_ref().map(|head| head.info.id));
        if known != Some(head.info.id) {
            let head = Some(head);
            self.show(name, Heads { round, head });
        }
    }

    /// Shows a queue its head, and starts a task for a queue that is new.
    fn show(&mut self, name: Arc<str>, heads: Heads) {
        if let Some(known) = self.heads.get(&name) {
            known.send_replace(heads);
            return;
        }
        let (sender, heads) = watch::channel(heads);
        let queue = Queue {
            shared: Arc::clone(&self.shared),
            name: Arc::clone(&name),
            service: self.service.clone(),
            heads,
            refresh: self.refresh.clone(),
            running: JoinSet::new(),
            outdated: 0,
            next: None,
            batch: 1,
            last_head: None,
            is_refused: false,
        };
        let task = self.tasks.spawn(queue.run());
        self.names.insert(task.id(), Arc::clone(&name));
        self.heads.insert(name, sender);
    }

    /// Forgets a queue after its task has ended. It asks for another reading, because the queue may have got a backlog
    /// since.
    fn on_end(&mut self, ended: Result<(Id, ()), JoinError>) -> BacklogChange {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                tracing::error!(%error, "a queue of the worker failed");
                error.id()
            }
        };
        if let Some(name) = self.names.remove(&id) {
            self.heads.remove(&name);
        }
        BacklogChange::Any
    }
}

async fn sleep_until(time: Option<SystemTime>) {
    match time {
        Some(time) => {
            let wait = time.duration_since(SystemTime::now()).unwrap_or_default();
            // The clocks of the store and of this machine may differ, so a minimum keeps the worker from polling all
            // the time.
            tokio::time::sleep(wait.max(SHORTEST_SLEEP)).await;
        }
        None => std::future::pending().await,
    }
}

/// The shortest time until the next reading, if that waits for the start of a delayed request.
const SHORTEST_SLEEP: Duration = Duration::from_millis(20);
