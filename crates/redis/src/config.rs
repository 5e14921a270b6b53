//! The configuration of a store on Redis.

use std::time::Duration;

use super::nodes::Nodes;
use tower_triage_durable::{InvalidStoreConfig, StoreConfig};

/// The address of Redis, the name under which it keeps the requests, and their limits.
///
/// ```
/// use tower_triage_durable::StoreConfig;
/// use tower_triage_redis::RedisConfig;
///
/// let config = RedisConfig::new("redis://127.0.0.1:6379")
///     .queue("images")
///     .store(StoreConfig::default().max_size(10_000));
/// assert_eq!(config.queue, "images");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// The address: `redis://[user:password@]host[:port][/database]`, or
    /// `redis+cluster://[user:password@]host[:port],…` with some nodes of a cluster. The store learns the other nodes
    /// from these. `rediss://` and `rediss+cluster://` use TLS with the system's certificates, which needs the feature
    /// `tls`.
    pub url: String,
    /// The common name in the keys of all requests. Stores with the same name share their requests. The default is
    /// `default`.
    pub queue: String,
    /// The limits, times and order. Processes that share requests should use the same values. This store treats
    /// [`Discipline::Deadline`](tower_triage::Discipline::Deadline) like [`Fifo`](tower_triage::Discipline::Fifo).
    pub store: StoreConfig,
    /// The number of replicas that must have a request before it is acknowledged. The default is 0.
    pub replicas: u32,
    /// The time within which the replicas must have the request. The default is 1 s.
    pub replica_timeout: Duration,
}

impl RedisConfig {
    /// Returns the configuration of a store at this address, with defaults for all other values.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            queue: "default".to_owned(),
            store: StoreConfig::default(),
            replicas: 0,
            replica_timeout: Duration::from_secs(1),
        }
    }

    /// Sets the common name in the keys of all requests.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Sets the limits, times and order.
    #[must_use]
    pub fn store(mut self, store: StoreConfig) -> Self {
        self.store = store;
        self
    }

    /// Sets the number of replicas that must have a request before it is acknowledged, and the time within which they
    /// must.
    #[must_use]
    pub fn replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = replicas;
        self.replica_timeout = timeout;
        self
    }

    /// Checks the values that the types can't rule out. It needs no connection.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first invalid value. The error never contains the password.
    pub fn validate(&self) -> Result<(), ConnectError> {
        self.store.validate()?;
        if self.queue.is_empty() || self.queue.contains(['{', '}']) {
            return Err(ConnectError::Queue(self.queue.clone()));
        }
        self.nodes().map(drop)
    }

    pub(super) fn nodes(&self) -> Result<Nodes, ConnectError> {
        Nodes::parse(&self.url, &self.namespace())
    }

    /// Returns the beginning of all keys. The part in braces is their hash tag.
    pub(super) fn namespace(&self) -> String {
        format!("triage:{{{}}}", self.queue)
    }
}

impl std::fmt::Debug for RedisConfig {
    /// Formats the configuration without the address, because the address may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("queue", &self.queue)
            .field("store", &self.store)
            .field("replicas", &self.replicas)
            .field("replica_timeout", &self.replica_timeout)
            .finish_non_exhaustive()
    }
}

/// An error from opening a store on Redis.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The limits or times are invalid.
    #[error(transparent)]
    Config(#[from] InvalidStoreConfig),
    /// The address can't be parsed. The error omits the address, because it may hold a password.
    #[error(
        "the address of Redis can't be used: {0}; expected `redis://host:port`, or \
         `redis+cluster://host:port,host:port` for a cluster, with `rediss` for TLS"
    )]
    Url(String),
    /// The name of the queue can't be used as a hash tag.
    #[error("`queue` is {0:?}: expected at least one character, and no braces")]
    Queue(String),
    /// The store was opened outside a Tokio runtime, which must run its tasks.
    #[error("a store on Redis has to be opened within a Tokio runtime")]
    NoRuntime,
    /// The system can't provide random bytes for the name of this process.
    #[error("no random bytes for the name of this process: {0}")]
    Random(String),
}
