//! Batching of script calls: while one call is on its way, new items for the same script wait and then share the next
//! call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Script, Value};
use tokio::sync::oneshot;

use super::direct::{Direct, Startable};
use super::reply::Unexpected;
use super::scripts;
use super::shared::Shared;
use tower_triage_durable::StoreError;

/// The largest number of items in one call. It is limited because Redis serves no other client during a script.
const MAX_ITEMS: usize = 64;
/// The size of its items in bytes from which on a call accepts no further items.
const MAX_BYTES: usize = 256 << 10;

/// The arguments of one item. Each item of a script has the same number of them.
pub(super) type Item = Vec<Vec<u8>>;

/// The scripts that most requests run. Each of them takes several items and returns one reply for each.
pub(super) struct Batches {
    pub(super) enqueue: Batch,
    pub(super) watch: Batch,
    pub(super) called: Batch,
    pub(super) finish: Batch,
}

impl Batches {
    pub(super) fn new() -> Self {
        Self {
            enqueue: Batch::new(&scripts::ENQUEUE),
            watch: Batch::new(&scripts::WATCH),
            called: Batch::new(&scripts::CALLED),
            finish: Batch::new(&scripts::FINISH),
        }
    }
}

/// The items that wait for the next call of one script.
pub(super) struct Batch {
    script: &'static Script,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// `true` while a task makes calls of this script.
    is_busy: bool,
}

/// An item that waits for its call.
struct Waiting {
    item: Item,
    reply: Reply,
    /// The new request, if it may begin as soon as it is stored.
    startable: Option<Startable>,
}

type Reply = oneshot::Sender<Result<Value, StoreError>>;

impl Batch {
    fn new(script: &'static Script) -> Self {
        Self {
            script,
            state: Mutex::default(),
        }
    }

    /// Returns the items of the next call. If the list is empty, the task that makes the calls ends.
    fn next_call(&self) -> Vec<Waiting> {
        let mut state = self.lock();
        let mut items = Vec::new();
        let mut bytes = 0;
        while bytes < MAX_BYTES && items.len() < MAX_ITEMS {
            let Some(next) = state.waiting.pop_front() else {
                break;
            };
            bytes += next.item.iter().map(Vec::len).sum::<usize>();
            items.push(next);
        }
        // The flag changes under the same lock as the queue, so a later item starts a new task.
        state.is_busy = !items.is_empty();
        items
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that drops the waiting items if the task ends early, for instance with its runtime. Their callers then get
/// an error, and the next item starts a new task.
struct DropGuard<'a> {
    batch: &'a Batch,
    has_ended: bool,
}

impl Drop for DropGuard<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            *self.batch.lock() = State::default();
        }
    }
}

impl Shared {
    /// Runs a script for an item, in one call with the other items that wait at that time. The item is processed even
    /// if this future is dropped.
    pub(super) async fn run_batched(
        self: &Arc<Self>,
        batch: impl Fn(&Batches) -> &Batch + Send + 'static,
        item: Item,
        startable: Option<Startable>,
    ) -> Result<Value, StoreError> {
        let (reply, answer) = oneshot::channel();
        let waiting = Waiting {
            item,
            reply,
            startable,
        };
        let is_first = {
            let mut state = batch(&self.batches).lock();
            state.waiting.push_back(waiting);
            !std::mem::replace(&mut state.is_busy, true)
        };
        if is_first {
            let shared = Arc::clone(self);
            tokio::spawn(async move {
                let batch = batch(&shared.batches);
                let mut guard = DropGuard {
                    batch,
                    has_ended: false,
                };
                loop {
                    let items = batch.next_call();
                    if items.is_empty() {
                        guard.has_ended = true;
                        return;
                    }
                    shared.run_batch(batch, items).await;
                }
            });
        }
        answer.await.unwrap_or_else(|_| {
            let reason = "the runtime is shutting down";
            Err(StoreError::Unavailable(reason.to_owned()))
        })
    }

    async fn run_batch(self: &Arc<Self>, batch: &Batch, waiting: Vec<Waiting>) {
        let (mut items, mut callers, mut startable) = (Vec::new(), Vec::new(), Vec::new());
        for one in waiting {
            items.push(one.item);
            callers.push(one.reply);
            startable.push(one.startable);
        }
        let replies = match std::ptr::eq(batch, &self.batches.enqueue) {
            true => self.run_enqueue(items, startable).await,
            false => {
                let call = self.call(batch.script).args(&items);
                let replies = self.link.run(&call).await;
                replies.and_then(|value| self.replies(value, items.len()))
            }
        };
        match replies {
            Ok(replies) => {
                for (caller, reply) in callers.into_iter().zip(replies) {
                    let _ = caller.send(Ok(reply)); // the caller may have left
                }
            }
            Err(error) => {
                for caller in callers {
                    let _ = caller.send(Err(error.clone()));
                }
            }
        }
    }
}

impl Shared {
    /// Stores the requests of one call. Those that have begun by that go to their worker.
    async fn run_enqueue(
        self: &Arc<Self>,
        mut items: Vec<Item>,
        startable: Vec<Option<Startable>>,
    ) -> Result<Vec<Value>, StoreError> {
        if self.replicas.is_none() {
            // Slots must not wait for a connection.
            self.link.connection().await?;
        }
        let mut direct = Direct::new(self, &mut items, startable);
        let config = &self.config.store;
        let call = self
            .call(&scripts::ENQUEUE)
            .arg(config.max_size)
            .arg(config.max_size_per_tenant)
            .arg(u8::from(self.config.replicas > 0))
            .args(&items);
        let result = match &self.replicas {
            Some(replicas) => replicas.run(&call, has_stored).await,
            None => direct.hold_during(self.link.run(&call)).await,
        };
        let replies = result.and_then(|value| self.replies(value, items.len()))?;
        self.read(direct.finish(&items, replies))
    }

    /// Reads one reply for each item of a call.
    fn replies(&self, value: Value, items: usize) -> Result<Vec<Value>, StoreError> {
        let replies = self.items(value)?;
        match replies.len() == items {
            true => Ok(replies),
            false => Err(self.link.unexpected(Unexpected)),
        }
    }
}

/// Returns `true` if at least one request is stored, by this call or by an earlier one. Its reply is then the time or the
/// request, and not a reason.
fn has_stored(replies: &Value) -> bool {
    let is_stored = |reply: &Value| match reply {
        Value::BulkString(text) => text.first().is_some_and(u8::is_ascii_digit),
        reply => matches!(reply, Value::Array(_)),
    };
    matches!(replies, Value::Array(replies) if replies.iter().any(is_stored))
}
