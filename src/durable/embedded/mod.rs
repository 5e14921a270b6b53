//! A store for one process: the order in memory, the rest in a folder.
//!
//! - `state/`: the state machine, without disk, task and clock.
//! - `storage.rs`: the trait of databases; `memory.rs`: in memory; `disk/`: in a folder. `write.rs`, `rows.rs` and `keys.rs`:
//!   what they keep; `archive.rs`: how it is found again.
//! - `shared.rs`: both behind a lock; `commits.rs`: the thread that writes changes down; `driver.rs`: the task that looks after the store; `waits.rs`: what is woken.
//! - `store.rs`: the operations.

mod archive;
mod commits;
mod disk;
mod driver;
mod error;
mod keys;
mod memory;
mod open;
#[cfg(feature = "__redb")]
mod redb;
mod rows;
mod shared;
mod state;
mod storage;
mod store;
#[cfg(all(test, not(loom)))]
mod tests;
mod time;
mod waits;
mod write;

use std::path::Path;
use std::sync::Arc;

use self::commits::Commits;
use self::disk::Disk;
pub use self::error::OpenError;
use self::memory::Memory;
use self::shared::Shared;
use self::storage::Storage;
use super::{InvalidStoreConfig, RequestId, StoreConfig};

/// A [`Store`](super::Store) for one process, in a folder.
///
/// The order of the requests is in memory, their bodies and responses are on the disk. What is answered with `Ok` was synced
/// to the disk; operations that wait at the same time share a sync. After a crash, what waited waits again, and what ran has
/// failed or is retried at once, as [`OnCrash`](super::OnCrash) says.
///
/// While the disk is full, new requests are refused with [`StorageFull`](super::StoreError::StorageFull). Outcomes are still
/// taken, because 16 MiB are kept back for them; and new requests are taken again as soon as there is space.
///
/// It takes about 350 bytes of memory for each request that waits, its place in the order included. Bodies, responses and
/// ended requests are on the disk only: the [retention](StoreConfig::retention) decides how much of it they take.
///
/// It needs a Tokio runtime with its timer enabled: a task looks after deadlines, delays and retention from the first
/// operation until the store is closed or dropped. Its time is the system's at the start, and goes on by Tokio's clock.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
}

impl EmbeddedStore {
    /// Opens the store in a folder, which is made if there is none. Reads what is there, so it blocks: for some
    /// seconds where there are several 100,000 requests.
    ///
    /// # Errors
    ///
    /// If the configuration can't work, another process has the folder open, or it can't be read or written.
    pub fn open(path: impl AsRef<Path>, config: StoreConfig) -> Result<Self, OpenError> {
        config.validate()?;
        let opening = RequestId::random().map_err(OpenError::NoRandomness)?;
        let disk = Disk::open(path.as_ref())?;
        Self::start(path.as_ref(), config, opening, Arc::new(disk))
    }

    /// Opens the store in a folder, on another database.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    #[cfg(feature = "__redb")]
    #[doc(hidden)]
    pub fn open_redb(path: impl AsRef<Path>, config: StoreConfig) -> Result<Self, OpenError> {
        config.validate()?;
        let opening = RequestId::random().map_err(OpenError::NoRandomness)?;
        let disk = redb::Redb::open(path.as_ref())?;
        Self::start(path.as_ref(), config, opening, Arc::new(disk))
    }

    fn start(
        path: &Path,
        config: StoreConfig,
        opening: RequestId,
        storage: Arc<dyn Storage>,
    ) -> Result<Self, OpenError> {
        // Its lower half is as random as the whole.
        let opening = opening.bits() as u64;
        let commits = Some(Commits::default());
        let shared = Arc::new(Shared::new(config, opening, storage, commits));
        shared.recover().map_err(|why| OpenError::Log {
            path: path.to_owned(),
            why: why.to_string(),
        })?;
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

    /// Opens a store that keeps all in memory and ends with the process, for tests and for requests that may be lost.
    ///
    /// # Errors
    ///
    /// If the configuration can't work.
    pub fn in_memory(config: StoreConfig) -> Result<Self, InvalidStoreConfig> {
        config.validate()?;
        let shared = Arc::new(Shared::new(config, 0, Arc::new(Memory::default()), None));
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
