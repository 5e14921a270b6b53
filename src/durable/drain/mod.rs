//! A store that takes the place of another one, which is emptied meanwhile.

mod reads;
mod store;
mod work;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Lease, RequestId, Store, StoreError, StoreFuture};

/// The time that one store may keep the other one's work waiting.
const BLOCK: Duration = Duration::from_millis(100);

/// A [`Store`] made of two: new requests go to one, and what the other one holds is brought to its end.
///
/// Use it to move to another Redis, or from a folder to Redis, without a stop: start all processes anew with a `DrainStore`,
/// wait until [`remaining`](Self::remaining) is 0, keep it until the retention of the old store's answers is over, and start
/// the processes with the new store alone.
///
/// ```
/// # #[cfg(feature = "embedded")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use tower_triage::durable::{DrainStore, DurableLayer, EmbeddedStore, StoreConfig};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # let _guard = runtime.enter();
/// let old = EmbeddedStore::in_memory(StoreConfig::default())?;
/// let new = EmbeddedStore::in_memory(StoreConfig::default())?;
/// let store = Arc::new(DrainStore::new(Arc::new(new), Arc::new(old)));
/// let layer = DurableLayer::new(store.clone());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "embedded"))]
/// # fn main() {}
/// ```
///
/// - A request with an idempotency key, or one that lists leave out, is stored unless the old store has it. All others are
///   stored without asking the old one; their names have to be new.
/// - Workers take requests from both in turn, or from the one with the more urgent level. Each request ends where it was
///   stored.
/// - Whatever names a request is answered by the store that has it. Lists show the new store's requests before the old one's.
/// - A value of [`put`](Store::put) goes to the new store and hides the old one's; [`remove`](Store::remove) works on both.
/// - If one of the stores is unavailable, workers go on with the other one. Limits count in the new store only.
pub struct DrainStore {
    new: Arc<dyn Store>,
    old: Arc<dyn Store>,
    state: Mutex<State>,
    /// `true` if the next fetch begins with the old store.
    turn: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The number of the last backlog, and what it was made of.
    version: u64,
    seen: Versions,
    /// The store with the more urgent head, for queues where one has it.
    urgent: HashMap<String, Side>,
}

/// The versions of both backlogs; `None` of one that could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Versions {
    new: Option<u64>,
    old: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Side {
    New,
    Old,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::New => Self::Old,
            Self::Old => Self::New,
        }
    }

    /// Returns a lease that remembers its store.
    fn mark(self, lease: &Lease) -> Lease {
        let side = match self {
            Self::New => "new",
            Self::Old => "old",
        };
        Lease::new(
            lease.id(),
            lease.attempt(),
            format!("{side} {}", lease.fence()),
        )
    }

    /// Returns the store of a lease, and the lease as that store knows it.
    fn of(lease: &Lease) -> (Self, Lease) {
        let (side, fence) = match lease.fence().split_once(' ') {
            Some(("old", fence)) => (Self::Old, fence),
            Some(("new", fence)) => (Self::New, fence),
            // Of another store: no lease is known by it.
            _ => (Self::New, lease.fence()),
        };
        let lease = Lease::new(lease.id(), lease.attempt(), fence.to_owned());
        (side, lease)
    }
}

impl std::fmt::Debug for DrainStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DrainStore").finish_non_exhaustive()
    }
}

impl DrainStore {
    /// Stores new requests in `new`, and brings those of `old` to their end.
    #[must_use]
    pub fn new(new: Arc<dyn Store>, old: Arc<dyn Store>) -> Self {
        Self {
            new,
            old,
            state: Mutex::default(),
            turn: AtomicBool::new(false),
        }
    }

    /// Returns the number of requests of the old store that have not ended.
    ///
    /// At 0 it is drained, once no process stores requests in it any more. Its answers, files and batches can still be
    /// read until their retention is over.
    ///
    /// # Errors
    ///
    /// If the old store is unavailable.
    pub async fn remaining(&self) -> Result<u64, StoreError> {
        let depths = self.old.depths().await?;
        Ok(depths
            .iter()
            .map(|level| level.queued + level.running)
            .sum())
    }

    fn at(&self, side: Side) -> &dyn Store {
        match side {
            Side::New => &*self.new,
            Side::Old => &*self.old,
        }
    }

    /// Returns the answer of the store that has one.
    async fn either<'a, T>(
        &'a self,
        ask: impl Fn(&'a dyn Store) -> StoreFuture<'a, Option<T>>,
    ) -> Result<Option<T>, StoreError> {
        let first = match ask(&*self.new).await {
            Ok(Some(answer)) => return Ok(Some(answer)),
            first => first,
        };
        match ask(&*self.old).await {
            Ok(None) => first,
            Ok(Some(answer)) => Ok(Some(answer)),
            // That of the new store says more.
            Err(error) => first.and(Err(error)),
        }
    }

    /// Returns the store that has a request.
    async fn side_of(&self, id: RequestId) -> Result<Option<Side>, StoreError> {
        let first = match self.new.get(id).await {
            Ok(Some(_)) => return Ok(Some(Side::New)),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match self.old.get(id).await {
            Ok(None) => first,
            Ok(Some(_)) => Ok(Some(Side::Old)),
            Err(error) => first.and(Err(error)),
        }
    }

    /// Returns the store from which to take first.
    fn first_of(&self, queue: &str) -> Side {
        if let Some(side) = self.lock().urgent.get(queue) {
            return *side;
        }
        // Relaxed: it guards nothing.
        match self.turn.fetch_xor(true, Relaxed) {
            true => Side::Old,
            false => Side::New,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
