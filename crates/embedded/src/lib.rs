//! A store for one process, with the order of requests in memory and the rest in a folder.
//!
//! - `state/` is the state machine, which works without disk, task and clock.
//! - `storage.rs` is the trait of databases. `memory.rs` implements it in memory, and `disk/` in a folder.
//! - `numbered.rs` numbers the commits of a database, and `ledger.rs` has the number of the last one in a file.
//! - `write.rs`, `rows.rs` and `keys.rs` define the rows in a database, and `archive.rs` reads them.
//! - `shared.rs` combines state and storage behind a lock. `commits.rs` is the thread that writes changes to the disk.
//! - `clock.rs` is the clock of a store, which goes on when the system's clock is set.
//! - `driver.rs` is the task that handles due events. `waits.rs` wakes callers that wait for a request.
//! - `store.rs` has the operations of the store.

mod archive;
mod clock;
mod commits;
mod disk;
mod driver;
mod error;
mod keys;
mod ledger;
mod memory;
mod numbered;
mod open;
mod rows;
mod shared;
mod state;
mod storage;
mod store;
#[cfg(test)]
mod tests;
mod time;
mod waits;
mod write;

use std::path::Path;
use std::sync::Arc;

use self::archive::Archive;
use self::clock::{Clock, Machine};
use self::commits::Commits;
use self::disk::Disk;
pub use self::error::OpenError;
use self::memory::Memory;
use self::numbered::Numbered;
use self::shared::Shared;
use self::storage::Storage;
use tower_triage_durable::{InvalidStoreConfig, RequestId, StoreConfig, StoreError};

/// A [`Store`](tower_triage_durable::Store) for one process, in a folder.
///
/// The order of the requests is in memory, and their bodies and responses are on the disk. An operation returns `Ok`
/// only after its changes were synced to the disk, and concurrent operations share a sync. After a crash, waiting
/// requests wait again. Requests that ran fail or are retried at once, as [`OnCrash`](tower_triage_durable::OnCrash) configures.
///
/// While the disk is full, new requests are refused with [`StorageFull`](tower_triage_durable::StoreError::StorageFull). Outcomes are
/// still accepted, because the store reserves 16 MiB for them. The store accepts new requests again as soon as there is
/// space.
///
/// Each waiting request takes about 350 bytes of memory, including its position in the order. Bodies, responses and
/// ended requests are only on the disk, and the [retention](StoreConfig::retention) determines the space that they
/// take.
///
/// The store needs a Tokio runtime with its timer enabled. From the first operation until the store is closed or
/// dropped, a task handles deadlines, delays and retention. These go on as before when the system's clock is set, also
/// while the store is closed, and the times that callers see follow the system's clock.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
}

impl EmbeddedStore {
    /// Opens the store in a folder, and creates the folder if it is missing. This blocks while it reads the stored
    /// requests, which takes some seconds for several 100,000 requests.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid, another process has opened the folder, the folder can't be read or
    /// written, or acknowledged requests are missing in it.
    pub fn open(path: impl AsRef<Path>, config: StoreConfig) -> Result<Self, OpenError> {
        config.validate()?;
        let opening = RequestId::random().map_err(OpenError::NoRandomness)?;
        let path = path.as_ref();
        let disk = Numbered::open(path, false, |known| Disk::open(path, known))?;
        Self::start(path, config, opening, Arc::new(disk), &Machine::now())
    }

    /// Opens what is whole of a damaged store, which [`open`](Self::open) refuses. The damaged files are kept as they
    /// are, in a folder `log.damaged-…` beside the log.
    ///
    /// A request whose latest changes are lost is in an earlier state, so it may run again. The log of the crate says
    /// what was left out.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`open`](Self::open), except that requests may be missing.
    pub fn salvage(path: impl AsRef<Path>, config: StoreConfig) -> Result<Self, OpenError> {
        config.validate()?;
        let opening = RequestId::random().map_err(OpenError::NoRandomness)?;
        let path = path.as_ref();
        let disk = Numbered::open(path, true, |_| Disk::salvage(path))?;
        Self::start(path, config, opening, Arc::new(disk), &Machine::now())
    }

    fn start(
        path: &Path,
        config: StoreConfig,
        opening: RequestId,
        storage: Arc<dyn Storage>,
        machine: &Machine,
    ) -> Result<Self, OpenError> {
        // The lower half of the id is as random as the whole.
        let opening = opening.bits() as u64;
        let unreadable = |why: StoreError| OpenError::Log {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let archive = Archive(&*storage, &config.order.levels);
        let (row, latest) = (archive.clock(), archive.latest());
        let (row, latest) = (row.map_err(unreadable)?, latest.map_err(unreadable)?);
        let clock = Clock::resume(machine, row, latest);
        let commits = Some(Commits::default());
        let shared = Arc::new(Shared::new(config, opening, clock, storage, commits));
        shared.recover().map_err(unreadable)?;
        let store = Self { shared };
        if let Some(commits) = &store.shared.commits {
            let started = commits.start(&store.shared);
            started.map_err(|source| OpenError::Folder {
                path: path.to_owned(),
                source,
            })?;
        }
        Ok(store)
    }

    /// Opens a store that keeps everything in memory and ends with the process. It suits tests and requests that may be
    /// lost.
    ///
    /// # Errors
    ///
    /// Fails if the configuration is invalid.
    pub fn in_memory(config: StoreConfig) -> Result<Self, InvalidStoreConfig> {
        config.validate()?;
        let (clock, storage) = (Clock::start(), Arc::new(Memory::default()));
        let shared = Arc::new(Shared::new(config, 0, clock, storage, None));
        Ok(Self { shared })
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.shared.stop();
        self.shared.join();
    }
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").finish_non_exhaustive()
    }
}
