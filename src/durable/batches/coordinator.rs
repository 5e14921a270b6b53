//! The task that finds batches which have not ended, and has each of them driven.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::{RequestId, StoreError};
use super::driver::Driver;
use super::records::{self, Active};
use super::scan::Scan;
use super::{BatchApi, id, keys, sweep};

/// The time between two looks at all batches that have not ended.
const SCAN: Duration = Duration::from_secs(10);
/// The time between two signs of life.
pub(super) const BEAT: Duration = Duration::from_secs(5);
/// The time without a sign of life after which a coordinator has gone.
const SILENCE: Duration = Duration::from_secs(30);
/// The number of batches of one tenant that this process drives at a time. Further ones wait for the end of an older one:
/// each has up to 3 MiB of its input in memory.
const PER_TENANT: usize = 32;
const SCANNED_AT_ONCE: usize = 100;

impl BatchApi {
    /// Drives batches, and forgets files and batches whose time is over. It never ends: drop it to stop.
    ///
    /// Run it in each process that is a front. A batch is driven by one of them at a time: a process that starts takes all
    /// batches over, and those of a process that has gone for 30 s go to another. If two drive a batch at the same time,
    /// nothing is stored or run twice. Of one tenant, a process drives 32 batches at a time, the oldest first.
    pub async fn run(self) {
        let owner = loop {
            match RequestId::random() {
                Ok(id) => break id.to_string(),
                Err(error) => tracing::error!(%error, "no batch is driven without random bytes"),
            }
            sleep(SCAN).await;
        };
        let coordinator = Coordinator {
            api: self.clone(),
            owner,
            driven: JoinSet::new(),
            seen: HashMap::new(),
            has_started: false,
            has_waiting: false,
        };
        tokio::join!(coordinator.run(), sweep::sweep_forever(&self));
    }
}

struct Coordinator {
    api: BatchApi,
    owner: String,
    /// The drivers of batches, which return the batch's name.
    driven: JoinSet<String>,
    /// The batches that have not ended, by id.
    seen: HashMap<String, Seen>,
    /// `true` once all batches were taken over.
    has_started: bool,
    /// `true` if batches wait for the end of others of their tenant.
    has_waiting: bool,
}

struct Seen {
    active: Active,
    /// The time at which it was seen to change.
    since: Instant,
    is_driven: bool,
    /// `false` if the latest scan has not found it.
    is_there: bool,
}

impl Coordinator {
    async fn run(mut self) {
        loop {
            // Registered before the look, so that no batch is missed between the two.
            let changed = self.api.changed.clone();
            let mut changed = std::pin::pin!(changed.notified());
            changed.as_mut().enable();
            if let Err(error) = self.scan().await {
                tracing::warn!(%error, "batches that have not ended could not be looked up; trying again");
            }
            let next_scan = Instant::now() + SCAN;
            loop {
                tokio::select! {
                    () = &mut changed => break,
                    () = sleep_until(next_scan) => break,
                    Some(driven) = self.driven.join_next() => {
                        self.forget(driven);
                        if self.has_waiting {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Looks at all batches that have not ended, and takes those that no process drives.
    async fn scan(&mut self) -> Result<(), StoreError> {
        for seen in self.seen.values_mut() {
            seen.is_there = false;
        }
        let mut scan = Scan::new(&self.api.store, keys::ACTIVE, SCANNED_AT_ONCE);
        let mut found = Vec::new();
        while let Some((batch, value)) = scan.next().await? {
            let active: Active = records::read(&batch, &value)?;
            found.push((batch, active));
        }
        self.has_waiting = false;
        let mut driven = HashMap::new();
        for seen in self.seen.values().filter(|seen| seen.is_driven) {
            *driven.entry(seen.active.tenant.clone()).or_default() += 1;
        }
        // The oldest first: their names sort last.
        for (batch, active) in found.into_iter().rev() {
            self.look_at(&batch, active, &mut driven);
        }
        self.seen.retain(|_, seen| seen.is_there || seen.is_driven);
        self.has_started = true;
        Ok(())
    }

    /// Takes a batch if no other process drives it. `driven`: the number of batches that this one drives, by tenant.
    fn look_at(&mut self, batch: &str, active: Active, driven: &mut HashMap<String, usize>) {
        let seen = self.seen.entry(batch.to_owned()).or_insert_with(|| Seen {
            active: active.clone(),
            since: Instant::now(),
            is_driven: false,
            is_there: true,
        });
        seen.is_there = true;
        if seen.active != active {
            seen.active = active.clone();
            seen.since = Instant::now();
        }
        let is_free = active.owner.is_empty() || active.owner == self.owner;
        let is_silent = seen.since.elapsed() >= SILENCE;
        if seen.is_driven || !(is_free || is_silent || !self.has_started) {
            return;
        }
        let count = driven.entry(active.tenant.clone()).or_default();
        if *count >= PER_TENANT {
            self.has_waiting = true;
            return;
        }
        *count += 1;
        seen.is_driven = true;
        let taken = Active {
            owner: self.owner.clone(),
            beat: active.beat + 1,
            at: id::millis(SystemTime::now()),
            tenant: active.tenant.clone(),
        };
        let driver = Driver {
            api: self.api.clone(),
            id: batch.to_owned(),
            seen_at: active.at,
            active: taken.clone(),
        };
        self.driven.spawn(async move {
            let id = driver.id.clone();
            driver.drive().await;
            id
        });
    }

    /// Notes that a batch is no longer driven here.
    fn forget(&mut self, driven: Result<String, tokio::task::JoinError>) {
        match driven {
            Ok(batch) => drop(self.seen.remove(&batch)),
            Err(error) => {
                // The batch stays taken, so that a line which makes the driver panic does not do so for ever.
                tracing::error!(%error, "the task of a batch has panicked; the batch goes on after a restart");
            }
        }
    }
}
