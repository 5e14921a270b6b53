//! Calls of one script that stand together: while one is on its way, those that come go together in the next.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::{Script, Value};
use tokio::sync::oneshot;

use super::reply::Unexpected;
use super::scripts;
use super::shared::Shared;
use crate::durable::StoreError;

/// The largest number of items of one call, because Redis serves nothing else meanwhile.
const MAX_ITEMS: usize = 64;
/// The size of its items from which on a call takes no more.
const MAX_BYTES: usize = 256 << 10;

/// The arguments of one item: as many for each item of a script.
pub(super) type Item = Vec<Vec<u8>>;

/// The scripts of a request's common way, each of which takes several items and returns a reply for each.
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

/// The items that wait for a call of one script.
pub(super) struct Batch {
    script: &'static Script,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Item, Reply)>,
    /// `true` while a task makes calls.
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

    /// Returns the items of the next call; none if no item waits, and then the task that makes calls ends.
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
        state.is_busy = !items.is_empty();
        items
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets go of the items that wait if the task that makes calls is dropped: its runtime may end before others do.
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
    /// Runs a script for an item, and for those that come meanwhile in the same call. The item is served also if this
    /// future is dropped.
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
                    let _ = caller.send(Ok(reply)); // it may have left
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

/// Returns `true` if one of the requests is stored: its reply comes with its state.
fn has_stored(replies: &Value) -> bool {
    let is_stored = |reply: &Value| matches!(reply, Value::Array(parts) if parts.len() == 2);
    matches!(replies, Value::Array(replies) if replies.iter().any(is_stored))
}
