//! The task that finds unfinished batches, and starts a driver for each of them.

use std::collections::HashMap;
use std::time::Duration;

use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::driver::Driver;
use super::records::{self, Active};
use super::scan::Scan;
use super::{BatchApi, id, keys, sweep};
use tower_triage_durable::{RequestId, StoreError};

/// The time between two scans of all unfinished batches.
const SCAN: Duration = Duration::from_secs(10);
/// The time between two heartbeats of a driver.
pub(super) const BEAT: Duration = Duration::from_secs(5);
/// The time without a heartbeat after which a process counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// The number of batches of one tenant that this process drives at a time. Further batches wait for an older one to
/// end, because each one keeps up to 3 MiB of its input in memory.
const PER_TENANT: usize = 32;
const SCANNED_AT_ONCE: usize = 100;

impl BatchApi {
    /// Drives batches, and removes files and batches that have expired. This future never ends; drop it to stop.
    ///
    /// Run it in each process that serves the API. One process at a time drives a batch. A process that starts takes
    /// over all batches, and the batches of a process that is silent for 30 s go to another one. If two processes drive
    /// a batch at the same time, each line is still stored and run only once. A process drives 32 batches of one tenant
    /// at a time, the oldest first.
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
    /// The driver tasks, each of which returns the id of its batch.
    driven: JoinSet<String>,
    /// The unfinished batches, by id.
    seen: HashMap<String, Seen>,
    /// `true` once all batches were taken over by the first scan.
    has_started: bool,
    /// `true` if batches wait because this process drives enough batches of their tenant.
    has_waiting: bool,
}

struct Seen {
    active: Active,
    /// The time at which the record was last seen to change.
    since: Instant,
    driver: DriverState,
    /// `false` if the latest scan has not found the batch.
    is_there: bool,
}

/// The state of this process' driver of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DriverState {
    None,
    Runs(task::Id),
    /// The driver has panicked. This process leaves the batch alone, so that a line which makes each driver panic can't
    /// do so again and again. As the heartbeats have ended, each other process may try once.
    Panicked,
}

impl Seen {
    /// Returns `true` while this process drives the batch.
    fn is_driven(&self) -> bool {
        matches!(self.driver, DriverState::Runs(_))
    }
}

impl Coordinator {
    async fn run(mut self) {
        loop {
            // The wait is registered before the scan, so that a batch which arrives in between is noticed.
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

    /// Looks up all unfinished batches, and takes those that have lost their process or have none yet.
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
        for seen in self.seen.values().filter(|seen| seen.is_driven()) {
            *driven.entry(seen.active.tenant.clone()).or_default() += 1;
        }
        // The oldest batches come first, and their ids sort last.
        for (batch, active) in found.into_iter().rev() {
            self.look_at(&batch, active, &mut driven);
        }
        self.seen
            .retain(|_, seen| seen.is_there || seen.is_driven());
        self.has_started = true;
        Ok(())
    }

    /// Takes a batch unless another process drives it. `driven` counts the batches that this process drives, by tenant.
    fn look_at(&mut self, batch: &str, active: Active, driven: &mut HashMap<String, usize>) {
        let seen = self.seen.entry(batch.to_owned()).or_insert_with(|| Seen {
            active: active.clone(),
            since: Instant::now(),
            driver: DriverState::None,
            is_there: true,
        });
        seen.is_there = true;
        if seen.active != active {
            seen.active = active.clone();
            seen.since = Instant::now();
        }
        let is_free = active.owner.is_empty() || active.owner == self.owner;
        let is_silent = seen.since.elapsed() >= SILENCE;
        if seen.driver != DriverState::None || !(is_free || is_silent || !self.has_started) {
            return;
        }
        let count = driven.entry(active.tenant.clone()).or_default();
        if *count >= PER_TENANT {
            self.has_waiting = true;
            return;
        }
        *count += 1;
        let taken = Active {
            owner: self.owner.clone(),
            beat: active.beat + 1,
            at: id::millis(self.api.store.now()),
            tenant: active.tenant.clone(),
        };
        let driver = Driver {
            api: self.api.clone(),
            id: batch.to_owned(),
            seen_at: active.at,
            active: taken.clone(),
        };
        let task = self.driven.spawn(async move {
            let id = driver.id.clone();
            driver.drive().await;
            id
        });
        seen.driver = DriverState::Runs(task.id());
    }

    /// Records that this process no longer drives a batch.
    fn forget(&mut self, driven: Result<String, JoinError>) {
        let error = match driven {
            Ok(batch) => return drop(self.seen.remove(&batch)),
            Err(error) => error,
        };
        let runs = DriverState::Runs(error.id());
        let Some((batch, seen)) = self.seen.iter_mut().find(|(_, seen)| seen.driver == runs) else {
            return;
        };
        seen.driver = DriverState::Panicked;
        tracing::error!(%error, %batch, "the driver of a batch has panicked; another process goes on with the batch \
             after 30 s, and this one after a restart");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tower_triage_durable::StoreConfig;
    use tower_triage_embedded::EmbeddedStore;

    #[tokio::test(start_paused = true)]
    async fn a_batch_whose_driver_panicked_is_left_alone_and_takes_no_place() {
        let store = Arc::new(EmbeddedStore::in_memory(StoreConfig::default()).unwrap());
        let mut coordinator = Coordinator {
            api: BatchApi::new(store),
            owner: "this process".to_owned(),
            driven: JoinSet::new(),
            seen: HashMap::new(),
            has_started: true,
            has_waiting: false,
        };
        // As many batches of one tenant as a process drives at a time, and one more.
        let batches: Vec<String> = (0..=PER_TENANT).map(|n| format!("batch_{n:02}")).collect();
        for batch in &batches {
            let key = keys::active(batch);
            let row = records::write(&Active::default());
            coordinator.api.store.put(&key, row).await.unwrap();
        }
        coordinator.scan().await.unwrap();
        assert!(coordinator.has_waiting);
        assert_eq!(coordinator.driven.len(), PER_TENANT);
        // One of them is lost, as by a panic.
        let (panicked, waiting) = (batches.last().unwrap(), &batches[0]);
        let DriverState::Runs(task) = coordinator.seen[panicked].driver else {
            panic!("the oldest batch is driven");
        };
        coordinator.driven.abort_all();
        while let Some(ended) = coordinator.driven.join_next().await {
            if ended.as_ref().is_err_and(|error| error.id() == task) {
                coordinator.forget(ended);
            }
        }
        coordinator.scan().await.unwrap();
        assert!(!coordinator.has_waiting);
        assert_eq!(coordinator.seen[panicked].driver, DriverState::Panicked);
        assert!(coordinator.seen[waiting].is_driven());
        // The end of the batch elsewhere is noticed.
        let key = keys::active(panicked);
        coordinator.api.store.remove(&key).await.unwrap();
        coordinator.scan().await.unwrap();
        assert!(!coordinator.seen.contains_key(panicked));
    }
}
