//! Follows the backlog of a store, and has one task for each queue in it.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinSet};
use tower_service::Service;

use super::Shared;
use super::queue::Queue;
use crate::durable::{Backlog, QueueHead};

/// The most urgent request of a queue, as one look at the backlog showed it.
#[derive(Debug, Default)]
pub(super) struct Heads {
    /// The number of the look.
    pub(super) round: u64,
    pub(super) head: Option<QueueHead>,
}

/// Asks for another look at the backlog.
#[derive(Clone, Default)]
pub(super) struct Refresh(Arc<Round>);

#[derive(Default)]
struct Round {
    /// The number of looks that have begun.
    begun: AtomicU64,
    is_wanted: Notify,
}

impl Refresh {
    /// Asks for a look that begins from now on. Returns the number of the latest look that began before.
    pub(super) fn ask(&self) -> u64 {
        let begun = self.begun();
        self.0.is_wanted.notify_one();
        begun
    }

    /// Returns the number of the latest look that has begun.
    pub(super) fn begun(&self) -> u64 {
        self.0.begun.load(SeqCst)
    }

    fn begin(&self) -> u64 {
        self.0.begun.fetch_add(1, SeqCst) + 1
    }
}

/// Runs a worker until its shutdown, and then until the last attempt has ended.
pub(super) async fn dispatch<S, B>(shared: Arc<Shared>, service: S)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let refresh = Refresh::default();
    let mut queues: HashMap<Arc<str>, watch::Sender<Heads>> = HashMap::new();
    let mut names: HashMap<Id, Arc<str>> = HashMap::new();
    let mut tasks = JoinSet::new();
    while !shared.shutdown.is_cancelled() {
        let round = refresh.begin();
        let look = shared.health.until_done(|| shared.store.backlog());
        let backlog = tokio::select! {
            backlog = look => backlog,
            () = shared.shutdown.cancelled() => break,
        };
        let (version, next) = (backlog.version, backlog.next);
        for (name, head) in heads_by_queue(backlog, &queues) {
            let heads = Heads { round, head };
            if let Some(known) = queues.get(&name) {
                known.send_replace(heads);
                continue;
            }
            let (sender, heads) = watch::channel(heads);
            let queue = Queue {
                shared: Arc::clone(&shared),
                name: Arc::clone(&name),
                service: service.clone(),
                heads,
                refresh: refresh.clone(),
                running: JoinSet::new(),
                outdated: 0,
                batch: 1,
                last_head: None,
                is_refused: false,
            };
            names.insert(tasks.spawn(queue.run()).id(), Arc::clone(&name));
            queues.insert(name, sender);
        }
        let ended = tokio::select! {
            () = shared.shutdown.cancelled() => None,
            () = refresh.0.is_wanted.notified() => None,
            () = shared.health.until_done(|| shared.store.changed(version)) => None,
            () = sleep_until(next) => None,
            Some(ended) = tasks.join_next_with_id() => Some(match ended {
                Ok((id, ())) => id,
                Err(error) => {
                    tracing::error!(%error, "a queue of the worker failed");
                    error.id()
                }
            }),
        };
        // Another look follows: it may have got a backlog since.
        if let Some(name) = ended.and_then(|id| names.remove(&id)) {
            queues.remove(&name);
        }
    }
    while tasks.join_next().await.is_some() {}
}

/// Returns the head of each queue that has a backlog, and none for those that have no more.
fn heads_by_queue(
    backlog: Backlog,
    known: &HashMap<Arc<str>, watch::Sender<Heads>>,
) -> HashMap<Arc<str>, Option<QueueHead>> {
    let mut heads: HashMap<Arc<str>, Option<QueueHead>> =
        known.keys().map(|name| (Arc::clone(name), None)).collect();
    for head in backlog.queues {
        heads.insert(head.info.queue.as_str().into(), Some(head));
    }
    heads
}

async fn sleep_until(time: Option<SystemTime>) {
    match time {
        Some(time) => {
            let wait = time.duration_since(SystemTime::now()).unwrap_or_default();
            // The clocks of the store and of this machine may differ: not asked all the time then.
            tokio::time::sleep(wait.max(SHORTEST_SLEEP)).await;
        }
        None => std::future::pending().await,
    }
}

/// The shortest time between two looks at the backlog because a request may begin by now.
const SHORTEST_SLEEP: Duration = Duration::from_millis(20);
