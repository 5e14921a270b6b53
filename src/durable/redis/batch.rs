//! Batching of script calls: while one call is on its way, new items for the same script wait and then share the next
//! call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Script, Value};
use tokio::sync::oneshot;

use super::reply::Unexpected;
use super::scripts;
use super::shared::Shared;
use crate::durable::StoreError;

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
    waiting: VecDeque<(Item, Reply)>,
    /// `true` while a task makes calls of this script.
    is_busy: bool,
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
    fn next_call(&self) -> Vec<(Item, Reply)> {
        let mut state = self.lock();
        let mut items = Vec::new();
        let mut bytes = 0;
        while bytes < MAX_BYTES && items.len() < MAX_ITEMS {
            let Some(next) = state.waiting.pop_front() else {
                break;
            };
            bytes += next.0.iter().map(Vec::len).sum::<usize>();
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
    ) -> Result<Value, StoreError> {
        let (reply, answer) = oneshot::channel();
        let is_first = {
            let mut state = batch(&self.batches).lock();
            state.waiting.push_back((item, reply));
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

    async fn run_batch(&self, batch: &Batch, items: Vec<(Item, Reply)>) {
        let mut call = self.call(batch.script);
        let is_enqueue = std::ptr::eq(batch, &self.batches.enqueue);
        if is_enqueue {
            let config = &self.config.store;
            call = call
                .arg(config.max_size)
                .arg(config.max_size_per_tenant)
                .arg(u8::from(self.config.replicas > 0));
        }
        let (arguments, callers): (Vec<Item>, Vec<Reply>) = items.into_iter().unzip();
        for argument in arguments.iter().flatten() {
            call = call.arg(argument);
        }
        let result = match &self.replicas {
            Some(replicas) if is_enqueue => replicas.run(&call, has_stored).await,
            _ => self.link.run(&call).await,
        };
        let replies = result
            .and_then(|value| self.items(value))
            .and_then(|replies| match replies.len() == callers.len() {
                true => Ok(replies),
                false => Err(self.link.unexpected(Unexpected)),
            });
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

/// Returns `true` if at least one request is stored, by this call or by an earlier one. Its reply is then the time or the
/// request, and not a reason.
fn has_stored(replies: &Value) -> bool {
    let is_stored = |reply: &Value| match reply {
        Value::BulkString(text) => text.first().is_some_and(u8::is_ascii_digit),
        reply => matches!(reply, Value::Array(_)),
    };
    matches!(replies, Value::Array(replies) if replies.iter().any(is_stored))
}
