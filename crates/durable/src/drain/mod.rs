//! A store that replaces another one, while the requests of the other one come to their ends.

mod reads;
mod store;
mod work;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Lease, RequestId, Store, StoreError, StoreFuture};

/// The longest time for which a slow store may hold up the work of the other one.
const BLOCK: Duration = Duration::from_millis(100);

/// A [`Store`] made of two others, where new requests go to the new one while the old one is drained.
///
/// Use it to move to another Redis, or from a folder to Redis, without a stop. Restart all processes with a
/// `DrainStore` and wait until [`remaining`](Self::remaining) is 0. Keep the `DrainStore` until the retention of the
/// old store's responses is over, and then restart the processes with the new store alone.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use tower_triage_durable::{DrainStore, DurableLayer, StoreConfig};
/// use tower_triage_embedded::EmbeddedStore;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// # let _guard = runtime.enter();
/// let old = EmbeddedStore::in_memory(StoreConfig::default())?;
/// let new = EmbeddedStore::in_memory(StoreConfig::default())?;
/// let store = Arc::new(DrainStore::new(Arc::new(new), Arc::new(old)));
/// let layer = DurableLayer::new(store.clone());
/// # Ok(())
/// # }
/// ```
///
/// - A request with an idempotency key, or one that lists leave out, is stored unless the old store has it. All other
///   requests are stored without asking the old store, so they need new identifiers.
/// - Workers take requests from both stores in turn, or from the store with the more urgent level. Each request ends in
///   the store that holds it.
/// - The store that holds a request answers all operations on it. Lists show the requests of the new store before those
///   of the old one.
/// - A value of [`put`](crate::KeyValues::put) goes to the new store and hides a value of the old one, while
///   [`remove`](crate::KeyValues::remove) works on both.
/// - If one of the stores is unavailable, workers continue with the other one. Limits count only in the new store.
/// - It has the abilities that both stores have. The old one needs [`Drain`](crate::Drain), or requests with a key get 501, and
///   [`Operate`](crate::Operate), by which it is known to be drained.
pub struct DrainStore {
    new: Arc<dyn Store>,
    old: Arc<dyn Store>,
    state: Mutex<State>,
    /// `true` if the next fetch begins with the old store.
    turn: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The number of the last backlog that differed from the one before it.
    version: u64,
    /// The versions of the two backlogs that the last backlog was made of.
    seen: Versions,
    /// The store with the more urgent head, for each queue where the heads differ in their level.
    urgent: HashMap<String, Side>,
}

/// The versions of both backlogs, with `None` for a backlog that could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Versions {
    new: Option<u64>,
    old: Option<u64>,
}

/// A name for each of the two stores.
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

    /// Returns a lease that names its store in front of the original fence.
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
            // The lease comes from a third store, so the new store does not know it either and ignores it.
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
    /// Creates a store that keeps new requests in `new` and brings those of `old` to their ends.
    #[must_use]
    pub fn new(new: Arc<dyn Store>, old: Arc<dyn Store>) -> Self {
        Self {
            new,
            old,
            state: Mutex::default(),
            turn: AtomicBool::new(false),
        }
    }

    /// Returns the number of requests in the old store that have not ended.
    ///
    /// The old store is drained at 0, provided that all processes have stopped storing requests in it. Its responses,
    /// files and batches can be read until their retention is over.
    ///
    /// # Errors
    ///
    /// Returns an error if the old store is unavailable.
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

    /// Returns the answer of the store that has one, and asks the new store first.
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
            // If both stores fail, the error of the new one says more.
            Err(error) => first.and(Err(error)),
        }
    }

    /// Returns the store that holds a request, or `None` if it is unknown to both.
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

    /// Returns the store from which the next fetch takes requests first.
    fn first_of(&self, queue: &str) -> Side {
        if let Some(side) = self.lock().urgent.get(queue) {
            return *side;
        }
        // Relaxed is enough, because the flag only makes the stores take turns and other data is independent of it.
        match self.turn.fetch_xor(true, Relaxed) {
            true => Side::Old,
            false => Side::New,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
