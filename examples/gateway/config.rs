//! The configuration file: `gateway.example.toml`'s format.
//!
//! A key that is misspelt and ignored is found out in production, so every unknown key and every bad value
//! is an error that names the file, the line and the key.

mod backend;
mod health;
mod routing;
mod seconds;
mod unsupported;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tower_triage::route::{Endpoint, Registry, RegistryError};

use backend::Backend;
use health::Health;
use routing::Routing;
use tower_triage::{Concurrency, QueueConfig};
use unsupported::Unsupported;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(default = "default_listen")]
    pub(crate) listen: SocketAddr,
    #[serde(default = "default_body_limit")]
    pub(crate) body_limit_bytes: usize,
    #[serde(default, deserialize_with = "queue")]
    pub(crate) queue: QueueConfig,
    #[serde(default)]
    routing: Routing,
    #[serde(default)]
    health: Health,
    #[serde(default)]
    backends: Vec<Backend>,
    /// Never there: reading it fails.
    #[serde(default, rename = "swap")]
    _swap: Unsupported,
    /// Never there: reading it fails.
    #[serde(default, rename = "durable")]
    _durable: Unsupported,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("{}: {source}", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {source}", path.display())]
    Invalid {
        path: PathBuf,
        source: toml::de::Error,
    },
    #[error("{}: [queue]: {source}", path.display())]
    Queue {
        path: PathBuf,
        source: tower_triage::ConfigError,
    },
    #[error("{}: [[backends]]: {source}", path.display())]
    Backends {
        path: PathBuf,
        source: RegistryError,
    },
}

impl Config {
    /// Reads and checks the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<(Self, Registry), ConfigError> {
        let path = path.to_owned();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(ConfigError::Unreadable { path, source }),
        };
        let config: Self = match toml::from_str(&text) {
            Ok(config) => config,
            Err(source) => return Err(ConfigError::Invalid { path, source }),
        };
        if let Err(source) = config.queue.validate() {
            return Err(ConfigError::Queue { path, source });
        }
        match Registry::new(config.endpoints()) {
            Ok(registry) => Ok((config, registry)),
            Err(source) => Err(ConfigError::Backends { path, source }),
        }
    }

    /// Says what the file asks for, and what of it is not done yet.
    pub(crate) fn announce(&self) {
        self.routing.announce();
        self.health.announce();
        if self.backends.is_empty() {
            tracing::warn!("no [[backends]]: every request for a model will be answered 404");
        }
        for backend in &self.backends {
            backend.announce(&self.health);
        }
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.backends.iter().map(Backend::endpoint).collect()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: default_listen(),
            body_limit_bytes: default_body_limit(),
            queue: QueueConfig::default(),
            routing: Routing::default(),
            health: Health::default(),
            backends: Vec::new(),
            _swap: Unsupported,
            _durable: Unsupported,
        }
    }
}

/// `[queue]`, whose slots are the backends'.
fn queue<'de, D: Deserializer<'de>>(deserializer: D) -> Result<QueueConfig, D::Error> {
    let queue = QueueConfig::deserialize(deserializer)?;
    if queue.concurrency == Concurrency::default() {
        Ok(queue)
    } else {
        Err(D::Error::custom(
            "`concurrency` means nothing here: each backend has its `max_concurrent`",
        ))
    }
}

fn default_listen() -> SocketAddr {
    ([127, 0, 0, 1], 8080).into()
}

fn default_body_limit() -> usize {
    10 * 1024 * 1024
}

#[cfg(test)]
mod tests;
