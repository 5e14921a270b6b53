//! The combined backlog of both stores, and the fetches of workers from them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{BLOCK, DrainStore, Side, Versions};
use crate::{Backlog, Fetched, QueueHead, StoreError, StoreFuture};

/// The time after which a store is asked again, if its backlog could not be read.
const AGAIN: Duration = Duration::from_millis(500);

/// The time limit for the backlog of a store that missed the limit of [`BLOCK`] the last time.
const LONG_BLOCK: Duration = Duration::from_secs(1);

impl DrainStore {
    /// Returns the combined backlog of both stores. A store that takes too long or fails is left out.
    pub(super) async fn both_backlogs(&self) -> Result<Backlog, StoreError> {
        let before = self.lock().seen;
        let (mut new, mut old) = (self.new.backlog(), self.old.backlog());
        // The faster store limits the wait for the slower one, unless it failed.
        let (new, old) = tokio::select! {
            new = &mut new => match new {
                Ok(_) => (new, soon(old, before.old).await),
                Err(_) => (new, old.await),
            },
            old = &mut old => match old {
                Ok(_) => (soon(new, before.new).await, old),
                Err(_) => (new.await, old),
            },
        };
        let (new, old) = match (new, old) {
            (Err(error), Err(_)) => return Err(error),
            (new, old) => (new.ok(), old.ok()),
        };
        let seen = Versions {
            new: new.as_ref().map(|backlog| backlog.version),
            old: old.as_ref().map(|backlog| backlog.version),
        };
        let (new, old) = (new.unwrap_or_default(), old.unwrap_or_default());
        let (queues, urgent) = merge(new.queues, old.queues);
        let mut state = self.lock();
        if state.seen != seen {
            state.seen = seen;
            state.version += 1;
        }
        state.urgent = urgent;
        Ok(Backlog {
            version: state.version,
            queues,
            next: [new.next, old.next].into_iter().flatten().min(),
        })
    }

    /// Waits until the backlog of one of the stores may have changed.
    pub(super) async fn either_changed(&self, version: u64) {
        let seen = {
            let state = self.lock();
            match state.version == version {
                true => state.seen,
                // A later backlog has differed already.
                false => return,
            }
        };
        let changed = async |side: Side, version: Option<u64>| {
            let Some(version) = version else {
                return sleep(AGAIN).await;
            };
            if self.at(side).changed(version).await.is_err() {
                // The failure of one store must not wake the worker at once, because the other store may still work.
                sleep(AGAIN).await;
            }
        };
        // The worker has yet to read a backlog, so it does not have to wait.
        if seen == Versions::default() {
            return;
        }
        tokio::select! {
            () = changed(Side::New, seen.new) => {}
            () = changed(Side::Old, seen.old) => {}
        }
    }

    /// Takes requests from one store or, if that is empty or slow, from the other one.
    pub(super) async fn fetch_from_one(
        &self,
        queue: &str,
        max: usize,
    ) -> Result<Vec<Fetched>, StoreError> {
        let first = self.first_of(queue);
        // A fetch that is dropped gives its requests back. Therefore this function may drop a slow fetch, and it
        // returns as soon as one of the fetches has requests.
        let tried = match timeout(BLOCK, self.fetch_at(first, queue, max)).await {
            Ok(Ok(taken)) if !taken.is_empty() => return Ok(taken),
            tried => tried,
        };
        let other = self.fetch_at(first.other(), queue, max).await;
        match (tried, other) {
            (_, Ok(taken)) if !taken.is_empty() => Ok(taken),
            // The first store was too slow and the other one has nothing, so the first one now gets all the time that
            // it needs.
            (Err(_), _) => self.fetch_at(first, queue, max).await,
            (Ok(tried), other) => tried.or(other),
        }
    }

    async fn fetch_at(
        &self,
        side: Side,
        queue: &str,
        max: usize,
    ) -> Result<Vec<Fetched>, StoreError> {
        let mut taken = self.at(side).fetch(queue, max).await?;
        for fetched in &mut taken {
            fetched.lease = side.mark(&fetched.lease);
            // The other store may hold further requests, and more urgent ones.
            fetched.is_last = false;
            fetched.next = None;
        }
        Ok(taken)
    }
}

/// Waits a short time for the slower of two stores. The time is longer if the store was left out `before`, so that it
/// gets its turn eventually.
async fn soon(
    backlog: StoreFuture<'_, Backlog>,
    before: Option<u64>,
) -> Result<Backlog, StoreError> {
    let within = before.map_or(LONG_BLOCK, |_| BLOCK);
    timeout(within, backlog).await.unwrap_or_else(|_| {
        let slow = format!("no answer within {within:?}");
        Err(StoreError::Unavailable(slow))
    })
}

/// Returns the combined heads of all queues. For each queue with heads of different levels, it also returns the store
/// with the more urgent one.
fn merge(new: Vec<QueueHead>, old: Vec<QueueHead>) -> (Vec<QueueHead>, HashMap<String, Side>) {
    let mut urgent = HashMap::new();
    let mut heads: BTreeMap<String, QueueHead> = BTreeMap::new();
    for head in new {
        heads.insert(head.info.queue.clone(), head);
    }
    for mut head in old {
        let queue = head.info.queue.clone();
        if let Some(other) = heads.remove(&queue) {
            let runnable = head.runnable + other.runnable;
            let side = match head.info.level.cmp(&other.info.level) {
                std::cmp::Ordering::Less => Some(Side::Old),
                std::cmp::Ordering::Equal => None,
                std::cmp::Ordering::Greater => Some(Side::New),
            };
            if let Some(side) = side {
                urgent.insert(queue.clone(), side);
            }
            // For heads of the same level, the one of the old store is usually older.
            if side == Some(Side::New) {
                head = other;
            }
            head.runnable = runnable;
        }
        heads.insert(queue, head);
    }
    (heads.into_values().collect(), urgent)
}
