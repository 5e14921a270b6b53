//! The configuration of a store on Redis.

use std::time::Duration;

use super::nodes::Nodes;
use crate::durable::{InvalidStoreConfig, StoreConfig};

/// The address of a Redis, the name of the requests in it, and their limits.
///
/// ```
/// use tower_triage::durable::{RedisConfig, StoreConfig};
///
/// let config = RedisConfig::new("redis://127.0.0.1:6379")
///     .queue("images")
///     .store(StoreConfig::default().max_size(10_000));
/// assert_eq!(config.queue, "images");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// The address: `redis://[user:password@]host[:port][/database]`, or `redis+cluster://[user:password@]host[:port],…` with
    /// some nodes of a cluster, from which the others are learned. `rediss://` and `rediss+cluster://` use TLS with the
    /// system's certificates; they need the feature `tls`.
    pub url: String,
    /// The name that the keys of all requests have in common. Stores of the same name share their requests. Default
    /// `default`.
    pub queue: String,
    /// The limits, times and order. Processes that share requests should have the same. This store takes
    /// [`Discipline::Deadline`](crate::Discipline::Deadline) for [`Fifo`](crate::Discipline::Fifo).
    pub store: StoreConfig,
    /// The number of replicas that must have a request before it is acknowledged. Default 0.
    pub replicas: u32,
    /// The time that the replicas have for that. Default 1 s.
    pub replica_timeout: Duration,
}

impl RedisConfig {
    /// Returns the configuration of a store at this address.
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

    /// Sets the name that the keys have in common.
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

    /// Sets the number of replicas that must have a request before it is acknowledged, and the time they have.
    #[must_use]
    pub fn replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = replicas;
        self.replica_timeout = timeout;
        self
    }

    /// Checks what the types leave open, without a connection.
    ///
    /// # Errors
    ///
    /// If a value can't work; the error says which one, and never has the password.
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

    /// Returns the beginning of all keys. The braces make it their hash tag.
    pub(super) fn namespace(&self) -> String {
        format!("triage:{{{}}}", self.queue)
    }
}

impl std::fmt::Debug for RedisConfig {
    /// The address is left out, because it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("queue", &self.queue)
            .field("store", &self.store)
            .field("replicas", &self.replicas)
            .field("replica_timeout", &self.replica_timeout)
            .finish_non_exhaustive()
    }
}

/// A store on Redis can't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The limits or times can't work.
    #[error(transparent)]
    Config(#[from] InvalidStoreConfig),
    /// The address can't be read. It is not repeated here, because it may hold a password.
    #[error(
        "the address of Redis can't be used: {0}; expected `redis://host:port`, or \
         `redis+cluster://host:port,host:port` for a cluster, with `rediss` for TLS"
    )]
    Url(String),
    /// The name of the queue can't be a hash tag.
    #[error("`queue` is {0:?}: expected at least one character, and no braces")]
    Queue(String),
    /// There is no Tokio runtime to run the store's tasks.
    #[error("a store on Redis has to be opened within a Tokio runtime")]
    NoRuntime,
    /// The system has no random bytes for the name of this process.
    #[error("no random bytes for the name of this process: {0}")]
    Random(String),
}
