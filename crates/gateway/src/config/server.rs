//! The `[server]` section: the threads that serve clients, the limits on what a client may hold, which pages of other sites
//! may ask, the paths that backends serve, and TLS.

mod origin;

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::certificate::TlsFiles;
use super::{Paths, seconds};
pub(crate) use origin::Origin;

/// The largest value of `workers`.
const MAX_WORKERS: usize = 1024;

/// The largest value of `max_connections`: more than a machine has descriptors.
const MAX_CONNECTIONS: u32 = 10_000_000;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerConfig {
    /// The number of threads that serve the main address; 0 is one per core.
    #[serde(deserialize_with = "workers")]
    workers: usize,
    /// The longest time until the head of a request is there.
    #[serde(
        rename = "header_timeout_seconds",
        deserialize_with = "seconds::positive"
    )]
    pub(crate) header_timeout: Duration,
    /// The longest time between two pieces of a request's body.
    #[serde(
        rename = "body_timeout_seconds",
        deserialize_with = "seconds::positive"
    )]
    pub(crate) body_timeout: Duration,
    /// The longest time that a kept connection may be without a request.
    #[serde(
        rename = "idle_timeout_seconds",
        deserialize_with = "seconds::positive"
    )]
    pub(crate) idle_timeout: Duration,
    /// The longest time for which a client may take nothing of a response that is there.
    #[serde(
        rename = "write_timeout_seconds",
        deserialize_with = "seconds::positive"
    )]
    pub(crate) write_timeout: Duration,
    /// The number of connections that each address serves at a time.
    #[serde(deserialize_with = "max_connections")]
    pub(crate) max_connections: u32,
    /// The number of bytes that all request bodies may have together while they are read or kept.
    #[serde(deserialize_with = "crate::config::body_limit")]
    pub(crate) body_memory_bytes: usize,
    /// The number of bytes of answers that the gateway makes itself and clients have yet to take, of each address.
    #[serde(deserialize_with = "own_answer_memory")]
    pub(crate) own_answer_memory_bytes: usize,
    /// Origins of pages whose requests are served as if they were the gateway's own.
    pub(crate) allowed_origins: Vec<Origin>,
    /// The paths whose requests go to backends.
    pub(crate) paths: Paths,
    /// The files of the main address's certificate. They are taken out when they are read.
    pub(super) tls: Option<TlsFiles>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            workers: 0,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(60),
            max_connections: 10_000,
            body_memory_bytes: 256 << 20,
            own_answer_memory_bytes: 64 << 20,
            allowed_origins: Vec::new(),
            paths: Paths::default(),
            tls: None,
        }
    }
}

impl ServerConfig {
    /// Checks that a body of `limit` bytes fits into the memory of all bodies.
    pub(super) fn check_body_memory(&self, limit: usize) -> Result<(), SmallBodyMemory> {
        let memory = self.body_memory_bytes;
        match memory < limit {
            true => Err(SmallBodyMemory { memory, limit }),
            false => Ok(()),
        }
    }

    /// Returns the number of threads that serve the main address: at least 1.
    pub(crate) fn worker_count(&self) -> usize {
        match self.workers {
            0 => thread::available_parallelism().map_or(1, NonZeroUsize::get),
            workers => workers,
        }
    }
}

/// The memory of all bodies is too small for the largest one.
#[derive(Debug, thiserror::Error)]
#[error(
    "`body_memory_bytes` is {memory}, less than `body_limit_bytes` of one request, {limit}: raise it or lower the limit"
)]
pub(crate) struct SmallBodyMemory {
    memory: usize,
    limit: usize,
}

/// The least memory of own answers, in bytes: some large answers at a time.
const LEAST_ANSWER_MEMORY: usize = 1 << 20;

fn own_answer_memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match usize::deserialize(deserializer)? {
        bytes @ LEAST_ANSWER_MEMORY.. => Ok(bytes),
        bytes => Err(D::Error::custom(format_args!(
            "{bytes} must be a number of bytes from {LEAST_ANSWER_MEMORY}"
        ))),
    }
}

fn workers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match usize::deserialize(deserializer)? {
        workers @ 0..=MAX_WORKERS => Ok(workers),
        workers => Err(D::Error::custom(format_args!(
            "{workers} must be a number of threads up to {MAX_WORKERS}, or 0 for one per core"
        ))),
    }
}

fn max_connections<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        connections @ 1..=MAX_CONNECTIONS => Ok(connections),
        connections => Err(D::Error::custom(format_args!(
            "{connections} must be a number of connections from 1 to {MAX_CONNECTIONS}"
        ))),
    }
}
