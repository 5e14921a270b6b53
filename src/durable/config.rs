//! The configuration that all stores share.

use std::time::Duration;

use crate::WaitingRoomConfig;

/// The limits, times and order of a store.
///
/// ```
/// use std::time::Duration;
/// use tower_triage::durable::{OnCrash, StoreConfig};
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
    /// The largest number of requests that have not ended. Default 1,000,000.
    pub max_size: u64,
    /// The largest number of requests of one tenant that have not ended; 0 for no bound of its own. Default 0.
    pub max_size_per_tenant: u64,
    /// The largest number of requests that run at the same time, over all workers; 0 for no bound. Default 0.
    pub max_running: u64,
    /// The largest number of requests of one queue that run at the same time; 0 for no bound. Default 0.
    pub max_running_per_queue: u64,
    /// The largest number of requests of one tenant that run at the same time; 0 for no bound. Requests of other tenants pass
    /// those that have to wait for it. Default 0.
    pub max_running_per_tenant: u64,
    /// The fate of a request whose worker died. Default [`OnCrash::Fail`].
    pub on_crash: OnCrash,
    /// The time after which a silent worker's requests are lost to it. Default 30 s. Not for stores of one process.
    pub lease: Duration,
    /// The time for which ended requests and their responses are kept, from their end. Default 24 h.
    pub retention: Duration,
    /// The order of the requests of one queue: its levels, discipline and weights. Bounds and times in it are not used.
    pub order: WaitingRoomConfig,
}

/// The fate of a request whose worker died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCrash {
    /// It has failed, so it is started at most once.
    Fail,
    /// It is started again, so it is started at least once.
    Retry {
        /// The number of starts, the first one included; at least 2.
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

    /// Sets the largest number of requests of one tenant that have not ended; 0 for no bound of its own.
    #[must_use]
    pub fn max_size_per_tenant(mut self, max_size: u64) -> Self {
        self.max_size_per_tenant = max_size;
        self
    }

    /// Sets the largest number of requests that run at the same time, over all workers; 0 for no bound.
    #[must_use]
    pub fn max_running(mut self, max_running: u64) -> Self {
        self.max_running = max_running;
        self
    }

    /// Sets the largest number of requests of one queue that run at the same time; 0 for no bound.
    #[must_use]
    pub fn max_running_per_queue(mut self, max_running: u64) -> Self {
        self.max_running_per_queue = max_running;
        self
    }

    /// Sets the largest number of requests of one tenant that run at the same time; 0 for no bound.
    #[must_use]
    pub fn max_running_per_tenant(mut self, max_running: u64) -> Self {
        self.max_running_per_tenant = max_running;
        self
    }

    /// Sets what becomes of a request whose worker died.
    #[must_use]
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.on_crash = on_crash;
        self
    }

    /// Sets the time after which a silent worker's requests are lost to it.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the time for which ended requests are kept.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the order of the requests of one queue.
    #[must_use]
    pub fn order(mut self, order: WaitingRoomConfig) -> Self {
        self.order = order;
        self
    }

    /// Checks what the types leave open.
    ///
    /// # Errors
    ///
    /// If a value can't work; the error names it.
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

/// A [`StoreConfig`] that can't work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidStoreConfig {
    /// No request could be stored.
    #[error("`max_size` is 0: no request could be stored")]
    MaxSize,
    /// A request that is retried is started twice at least.
    #[error("`max_attempts` counts starts, so with `on_crash = \"retry\"` it is at least 2")]
    MaxAttempts,
    /// Each request would be lost as soon as it was taken.
    #[error("`lease_seconds` is 0: each request would be lost as soon as it was started")]
    Lease,
}
