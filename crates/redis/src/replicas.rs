//! Requests that are acknowledged only when replicas have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::sync::Mutex;

use super::link::{Call, Link};
use super::nodes::Nodes;
use tower_triage_durable::StoreError;

/// A connection for writes that must reach replicas. `WAIT` counts only the writes of its own connection and blocks the
/// commands behind it, so these writes have a connection of their own. One `WAIT` serves all writes that came before
/// it.
pub(super) struct Replicas {
    link: Link,
    wanted: u32,
    within: Duration,
    /// The number of writes that Redis has answered.
    written: AtomicU64,
    last: Mutex<LastWait>,
}

/// The last `WAIT` that Redis has answered.
#[derive(Default)]
struct LastWait {
    /// The number of its connection.
    generation: u64,
    /// The number of writes that came before it.
    covered: u64,
    is_enough: bool,
}

impl Replicas {
    pub(super) fn new(nodes: Arc<Nodes>, wanted: u32, within: Duration) -> Self {
        Self {
            // A write may wait behind up to two `WAIT` commands.
            link: Link::new(nodes, within * 2),
            wanted,
            within,
            written: AtomicU64::new(0),
            last: Mutex::new(LastWait::default()),
        }
    }

    /// Runs a script, and waits until enough replicas have its writes. `has_written` is `false` for a reply without
    /// writes.
    pub(super) async fn run(
        &self,
        call: &Call<'_>,
        has_written: impl FnOnce(&Value) -> bool,
    ) -> Result<Value, StoreError> {
        let (value, mut connection, generation) = self.link.run_and_keep(call).await?;
        if !has_written(&value) {
            return Ok(value);
        }
        // The write is counted before the lock is taken, because only a `WAIT` that begins after the write's reply
        // covers it.
        let number = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = self.last.lock().await;
        if last.generation != generation || last.covered < number {
            // This counts all writes answered so far, including those that wait for the lock behind this one.
            let covered = self.written.load(Ordering::SeqCst);
            let mut wait = redis::cmd("WAIT");
            let within = self.within.as_millis().max(1) as u64;
            wait.arg(self.wanted).arg(within);
            let replicas: u32 = wait
                .query_async(&mut connection)
                .await
                .map_err(|error| self.link.error(&error))?;
            *last = LastWait {
                generation,
                covered,
                is_enough: replicas >= self.wanted,
            };
        }
        if !last.is_enough {
            return Err(StoreError::NotReplicated {
                wanted: self.wanted,
                within: self.within,
            });
        }
        Ok(value)
    }
}
