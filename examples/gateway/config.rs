//! The configuration file: `gateway.example.toml`'s format.
//!
//! A key that is misspelt and ignored is found out in production, so every unknown key and every bad value
//! is an error that names the file, the line and the key. Nothing is half read: who has a [`Config`] has one
//! that can be served.

mod backend;
mod environment;
mod error;
mod headers;
mod health;
mod seconds;
mod unsupported;
mod upstream;

use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tower_triage::QueueConfig;
use tower_triage::endpoints::{Endpoint, Registry};
use tower_triage::queue::Concurrency;
use tower_triage::route::{RoutingConfig, RoutingWarning};

use backend::Backend;
pub(crate) use environment::{Environment, process};
pub(crate) use error::InvalidQueueConfig;
use error::Problem;
use health::Health;
use unsupported::Unsupported;
pub(crate) use upstream::{Client, Upstream};

/// What is to be served, and how.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) body_limit_bytes: usize,
    pub(crate) queue: QueueConfig,
    pub(crate) routing: RoutingConfig,
    pub(crate) upstream: Upstream,
    pub(crate) client: Client,
    pub(crate) registry: Registry,
    /// What is allowed and may be meant otherwise.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Reads and checks the file at `path`.
    pub(crate) fn read(path: &Path, environment: Environment) -> Result<Self, InvalidQueueConfig> {
        let at = |problem| InvalidQueueConfig::in_file(path, problem);
        let text = std::fs::read_to_string(path).map_err(|error| at(Problem::Unreadable(error)))?;
        let mut file: File =
            toml::from_str(&text).map_err(|error| at(Problem::syntax(&text, error)))?;
        file.queue
            .validate()
            .map_err(|error| at(Problem::Queue(error)))?;
        let by_variable = environment::override_routing(&mut file.routing, environment)?;
        file.routing
            .validate()
            .map_err(|error| at(Problem::Routing(error)))?;
        let beside = path.parent().unwrap_or(Path::new(""));
        let (upstream, client) = file
            .upstream
            .open(beside)
            .map_err(|error| at(Problem::Upstream(error)))?;
        let endpoints: Result<Vec<Endpoint>, _> = file
            .backends
            .iter()
            .map(|backend| backend.endpoint(&file.health, environment))
            .collect();
        let endpoints = endpoints.map_err(|error| at(Problem::Header(error)))?;
        let registry = Registry::new(endpoints).map_err(|error| at(Problem::Backends(error)))?;

        let place = path.display().to_string();
        let mut warnings = routing_warnings(&file.routing, by_variable, &place);
        warnings.extend(registry_warnings(&registry, &place));
        Ok(Self {
            listen: file.listen,
            body_limit_bytes: file.body_limit_bytes,
            queue: file.queue,
            routing: file.routing,
            upstream,
            client,
            registry,
            warnings,
        })
    }

    /// The defaults, for these endpoints.
    pub(crate) fn without_file(
        registry: Registry,
        mut routing: RoutingConfig,
        environment: Environment,
    ) -> Result<Self, InvalidQueueConfig> {
        let by_variable = environment::override_routing(&mut routing, environment)?;
        Ok(Self {
            listen: default_listen(),
            body_limit_bytes: default_body_limit(),
            queue: QueueConfig::default(),
            warnings: routing_warnings(&routing, by_variable, "demo"),
            routing,
            upstream: Upstream::default(),
            client: Client::new(),
            registry,
        })
    }
}

fn routing_warnings(routing: &RoutingConfig, by_variable: bool, place: &str) -> Vec<String> {
    let warnings = routing.warnings().into_iter();
    let said = warnings.map(|warning| match warning {
        RoutingWarning::UnknownStrategy { .. } if by_variable => {
            format!("{}: {warning}", environment::STRATEGY)
        }
        _ => format!("{place}: [routing]: {warning}"),
    });
    said.collect()
}

fn registry_warnings(registry: &Registry, place: &str) -> Vec<String> {
    let endpoints = registry.endpoints();
    if endpoints.is_empty() {
        let none = "no [[backends]]: every request for a model will be answered 503";
        return vec![format!("{place}: {none}")];
    }
    let idle = endpoints
        .iter()
        .filter(|endpoint| endpoint.models.is_empty());
    let said = idle.map(|endpoint| {
        let name = &endpoint.name;
        format!("{place}: backend {name:?} has no `models`: nothing will be sent there")
    });
    said.collect()
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "default_listen")]
    listen: SocketAddr,
    #[serde(default = "default_body_limit")]
    body_limit_bytes: usize,
    #[serde(default, deserialize_with = "queue")]
    queue: QueueConfig,
    #[serde(default)]
    routing: RoutingConfig,
    #[serde(default)]
    upstream: Upstream,
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
