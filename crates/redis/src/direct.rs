//! Requests that begin in the same step in which they are stored, because a worker of this process has a free slot.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use redis::Value;

use super::batch::Item;
use super::reply::{self, Unexpected};
use super::shared::Shared;
use tower_triage::{Discipline, PriorityLevels};
use tower_triage_durable::{Fetched, FreePlace, IdleWorker, Lease, NewRequest, StoreError};

/// The time for which places are kept while Redis does not answer. After that, their slots are for other requests.
const LONGEST_HOLD: Duration = Duration::from_millis(500);

/// The lengths of the replies to a request that was known before, and to one that has begun.
const KNOWN: usize = 3;
const STARTED: usize = 4;

/// The workers of this process.
#[derive(Default)]
pub(super) struct IdleWorkers {
    workers: Mutex<Vec<Weak<dyn IdleWorker>>>,
    /// `true` if the latest call had no answer in time, so that no places are taken for the next one.
    is_silent: AtomicBool,
}

impl IdleWorkers {
    pub(super) fn add(&self, worker: Weak<dyn IdleWorker>) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|known| known.strong_count() > 0);
        workers.push(worker);
    }

    /// Returns a place for a request of this queue, from the first worker that has one.
    fn try_place(&self, queue: &str) -> Option<FreePlace> {
        let workers: Vec<_> = {
            let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            workers.iter().filter_map(Weak::upgrade).collect()
        };
        workers.iter().find_map(|worker| {
            // This runs code of the user, while callers of other requests depend on the caller.
            let place = catch_unwind(AssertUnwindSafe(|| worker.try_place(queue)));
            place.unwrap_or_else(|_| {
                tracing::error!(queue, "a worker panicked when it was asked for a free slot");
                None
            })
        })
    }
}

/// A new request that may begin as soon as it is stored.
pub(super) struct Startable {
    queue: String,
    /// Requests of one queue with the same class begin in the order in which they are stored.
    class: (u8, Vec<u8>),
    request: Bytes,
}

/// The places for the requests of one call that stores requests. Dropping it frees them.
pub(super) struct Direct<'a> {
    shared: &'a Arc<Shared>,
    places: Vec<Option<FreePlace>>,
    startable: Vec<Option<Startable>>,
    /// The number of this call among the fetches, because the call may return leases.
    number: u64,
}

impl<'a> Direct<'a> {
    /// Takes a place for each request that may begin, and tells the script of it in one more argument of its item.
    ///
    /// This happens just before the call, because a slot must not wait for the calls before it.
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        items: &mut [Item],
        startable: Vec<Option<Startable>>,
    ) -> Self {
        let places = take_places(&shared.workers, &startable);
        for (item, place) in items.iter_mut().zip(&places) {
            item.push(vec![if place.is_some() { b'1' } else { b'0' }]);
        }
        Self {
            shared,
            places,
            startable,
            number: shared.leases.begin_fetch(),
        }
    }

    /// Waits for the answer of the call. Frees the places if it takes long.
    pub(super) async fn hold_during<T>(
        &mut self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut call = pin!(call);
        let is_silent = &self.shared.workers.is_silent;
        if let Ok(result) = tokio::time::timeout(LONGEST_HOLD, &mut call).await {
            is_silent.store(result.is_err(), Relaxed);
            return result;
        }
        is_silent.store(true, Relaxed);
        self.places.fill_with(|| None);
        call.await
    }

    /// Runs the requests that have begun, and returns the replies as if these requests were queued.
    pub(super) fn finish(
        mut self,
        items: &[Item],
        mut replies: Vec<Value>,
    ) -> Result<Vec<Value>, Unexpected> {
        let mut unplaced = Vec::new();
        for (index, (reply, item)) in replies.iter_mut().zip(items).enumerate() {
            let parts = match reply {
                Value::Array(parts) => parts.len(),
                _ => 0,
            };
            if parts == KNOWN {
                continue; // its place, if it has one, stays until the drop
            }
            let place = self.places.get_mut(index).and_then(Option::take);
            if parts != STARTED {
                continue;
            }
            let [_, now, state, fence] = reply::parts(std::mem::replace(reply, Value::Nil))?;
            *reply = now;
            let startable = self.startable.get_mut(index).and_then(Option::take);
            let levels = self.shared.levels();
            let fetched = fetched(levels, item, state, fence, startable.ok_or(Unexpected)?)?;
            match place {
                Some(place) => {
                    self.shared.leases.add(std::iter::once(&fetched.lease));
                    place(fetched);
                }
                None => unplaced.push((fetched.lease.id(), fetched.lease.fence().to_owned())),
            }
        }
        if !unplaced.is_empty() {
            let shared = Arc::clone(self.shared);
            tokio::spawn(async move { shared.give_back(&unplaced).await });
        }
        Ok(replies)
    }
}

/// Returns a place for each request that may begin, as far as there are free ones.
///
/// If there are too few for all requests of a queue, only requests of one class get them. Of several classes, the most
/// urgent requests have to be fetched.
fn take_places(workers: &IdleWorkers, startable: &[Option<Startable>]) -> Vec<Option<FreePlace>> {
    /// The requests of one queue.
    struct Queue<'a> {
        class: &'a (u8, Vec<u8>),
        has_one_class: bool,
        has_places: bool,
    }
    let mut places = Vec::with_capacity(startable.len());
    let mut queues: HashMap<&str, Queue<'_>> = HashMap::new();
    let is_silent = workers.is_silent.load(Relaxed);
    for request in startable {
        let place = request.as_ref().and_then(|request| {
            let queue = queues.entry(&request.queue).or_insert(Queue {
                class: &request.class,
                has_one_class: true,
                has_places: !is_silent,
            });
            queue.has_one_class &= *queue.class == request.class;
            let place = queue
                .has_places
                .then(|| workers.try_place(&request.queue))
                .flatten();
            queue.has_places = place.is_some();
            place
        });
        places.push(place);
    }
    for (place, request) in places.iter_mut().zip(startable) {
        let queue = request
            .as_ref()
            .and_then(|request| queues.get(&*request.queue));
        if queue.is_some_and(|queue| !queue.has_one_class && !queue.has_places) {
            *place = None;
        }
    }
    places
}

/// Returns a request that has begun.
fn fetched(
    levels: &PriorityLevels,
    item: &Item,
    state: Value,
    fence: Value,
    startable: Startable,
) -> Result<Fetched, Unexpected> {
    let of_item = |index: usize| item.get(index).cloned().map(Value::BulkString);
    let (id, facts) = of_item(0).zip(of_item(1)).ok_or(Unexpected)?;
    let info = reply::info(Value::Array(vec![id, facts, state]), levels)?;
    let lease = Lease::new(info.id, info.attempts, reply::text(fence)?);
    Ok(Fetched::new(lease, info, startable.request))
}

impl Drop for Direct<'_> {
    fn drop(&mut self) {
        self.shared.leases.end_fetch(self.number);
        // A place that is left may belong to a request whose first reply was lost. The renewal task finds its lease.
        if self.places.iter().any(Option::is_some) {
            self.shared.claim.notify_one();
        }
    }
}

impl Shared {
    /// Returns the request if a worker of this process may run it as soon as it is stored.
    pub(super) fn startable(&self, request: &NewRequest, level: u8) -> Option<Startable> {
        // A request that needs replicas has to reach them first.
        let may_start =
            self.replicas.is_none() && request.delay.is_none_or(|delay| delay.is_zero());
        let tenant = match self.config.store.order.discipline {
            Discipline::Fair => request.tenant.clone(),
            _ => Vec::new(),
        };
        may_start.then(|| Startable {
            queue: request.queue.clone(),
            class: (level, tenant),
            request: request.request.clone(),
        })
    }
}
