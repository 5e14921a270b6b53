//! The configuration that all stores share.

use std::time::Duration;

use tower_triage::WaitingRoomConfig;

/// The limits, timeouts and queue order of a store.
///
/// Every [`Store`](super::Store) reads the same settings, so a service can move from one store to another without
/// changing them. The fields are public, and each one has a setter of the same name.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_durable::{OnCrash, StoreConfig};
///
/// let config = StoreConfig::default()
///     .max_size(10_000)
///     .on_crash(OnCrash::Retry { max_attempts: 3 })
///     .retention(Duration::from_secs(3_600));
/// assert_eq!(config.max_size, 10_000);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreConfig {
    /// The largest number of requests that have not ended, 1,000,000 by default.
    pub max_size: u64,
    /// The largest number of requests of one tenant that have not ended. The default of 0 leaves a tenant bounded by
    /// `max_size` alone.
    pub max_size_per_tenant: u64,
    /// The largest number of requests that run at the same time, over all workers. The default of 0 means unlimited.
    pub max_running: u64,
    /// The largest number of requests of one queue that run at the same time. The default of 0 means unlimited.
    pub max_running_per_queue: u64,
    /// The largest number of requests of one tenant that run at the same time. While a tenant is at this bound, its
    /// requests wait and those of other tenants pass them. The default of 0 means unlimited.
    pub max_running_per_tenant: u64,
    /// The fate of a request after its worker died, [`OnCrash::Fail`] by default.
    pub on_crash: OnCrash,
    /// The time after which a silent worker loses its requests, 30 s by default. A store that serves one process
    /// ignores it.
    pub lease: Duration,
    /// The time for which the store keeps a request and its response after the end, 24 h by default.
    pub retention: Duration,
    /// The order of the requests of one queue, given by the levels, the discipline and the weights of a waiting room.
    /// The store ignores the bounds and the times in it.
    pub order: WaitingRoomConfig,
}

/// The fate of a request after its worker died in the middle of an attempt.
///
/// A service that must see each request at most once needs `Fail`; an idempotent service can use `Retry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCrash {
    /// Fails the request, so the inner service sees it at most once.
    Fail,
    /// Puts the request back into its queue, so the inner service may see it several times.
    Retry {
        /// The largest number of starts, at least 2 because the first one counts.
        max_attempts: u32,
    },
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            max_size: 1_000_000,
            max_size_per_tenant: 0,
            max_running: 0,
            max_running_per_queue: 0,
            max_running_per_tenant: 0,
            on_crash: OnCrash::Fail,
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(24 * 60 * 60),
            order: WaitingRoomConfig::default(),
        }
    }
}

impl StoreConfig {
    /// Sets the largest number of requests that have not ended.
    #[must_use]
    pub fn max_size(mut self, max_size: u64) -> Self {
        self.max_size = max_size;
        self
    }

    /// Sets the largest number of requests of one tenant that have not ended; 0 leaves only the bound of the whole
    /// store.
    #[must_use]
    pub fn max_size_per_tenant(mut self, max_size: u64) -> Self {
        self.max_size_per_tenant = max_size;
        self
    }

    /// Sets the largest number of requests that run at the same time, over all workers; 0 means unlimited.
    #[must_use]
    pub fn max_running(mut self, max_running: u64) -> Self {
        self.max_running = max_running;
        self
    }

    /// Sets the largest number of requests of one queue that run at the same time; 0 means unlimited.
    #[must_use]
    pub fn max_running_per_queue(mut self, max_running: u64) -> Self {
        self.max_running_per_queue = max_running;
        self
    }

    /// Sets the largest number of requests of one tenant that run at the same time; 0 means unlimited.
    #[must_use]
    pub fn max_running_per_tenant(mut self, max_running: u64) -> Self {
        self.max_running_per_tenant = max_running;
        self
    }

    /// Sets the fate of a request after its worker died in the middle of an attempt.
    #[must_use]
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.on_crash = on_crash;
        self
    }

    /// Sets the time after which a silent worker loses its requests.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the time for which the store keeps a request and its response after the end.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the order in which workers get the requests of one queue.
    #[must_use]
    pub fn order(mut self, order: WaitingRoomConfig) -> Self {
        self.order = order;
        self
    }

    /// Checks the values that the types alone can't rule out.
    ///
    /// # Errors
    ///
    /// Returns the first setting that can't work, such as a `max_size` of 0.
    pub fn validate(&self) -> Result<(), InvalidStoreConfig> {
        if self.max_size == 0 {
            return Err(InvalidStoreConfig::MaxSize);
        }
        if let OnCrash::Retry {
            max_attempts: 0 | 1,
        } = self.on_crash
        {
            return Err(InvalidStoreConfig::MaxAttempts);
        }
        if self.lease.is_zero() {
            return Err(InvalidStoreConfig::Lease);
        }
        Ok(())
    }
}

/// The reason why [`StoreConfig::validate`] rejects a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidStoreConfig {
    /// The store would be unable to hold even one request.
    #[error("`max_size` is 0: no request could be stored")]
    MaxSize,
    /// `OnCrash::Retry` needs a bound of at least 2, because a retried request is started at least twice.
    #[error("`max_attempts` counts starts, so with `on_crash = \"retry\"` it is at least 2")]
    MaxAttempts,
    /// A lease of zero length would take each request away as soon as a worker has it.
    #[error("`lease_seconds` is 0: each request would be lost as soon as it was started")]
    Lease,
}
