//! The configuration file, in the format of `gateway.example.toml`.
//!
//! An unknown key or an invalid value is an error that names the file, the line and the key: a misspelt key that
//! is ignored would only be noticed in production. A [`Config`] has passed every check and can be served.

mod admin;
mod backend;
mod environment;
mod error;
mod expand;
mod headers;
mod health;
mod load;
mod seconds;
mod server;
mod swap;
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
use tower_triage::swap::SwapConfig;

use admin::AdminSection;
pub(crate) use admin::{AdminConfig, Token};
use backend::Backend;
pub(crate) use environment::{Environment, process};
pub(crate) use error::InvalidConfig;
use error::Problem;
use health::Health;
pub(crate) use server::{Origin, ServerConfig};
use swap::SwapSection;
use unsupported::Unsupported;
pub(crate) use upstream::{Client, Upstream};

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) body_limit_bytes: usize,
    pub(crate) server: ServerConfig,
    /// `None`: the operator's pages are on the main address.
    pub(crate) admin: Option<AdminConfig>,
    pub(crate) queue: QueueConfig,
    pub(crate) routing: RoutingConfig,
    pub(crate) upstream: Upstream,
    pub(crate) client: Client,
    pub(crate) registry: Registry,
    /// `None`: no model is started by the gateway.
    pub(crate) swap: Option<SwapConfig>,
    /// llama.cpp's and llama-swap's paths to load and unload models are on the main address, too.
    pub(crate) clients_may_unload: bool,
    /// Settings that are allowed but probably mistakes, one line each.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Reads and checks the file at `path`.
    pub(crate) fn read(path: &Path, environment: Environment) -> Result<Self, InvalidConfig> {
        let at = |problem| InvalidConfig::in_file(path, problem);
        let text = std::fs::read_to_string(path).map_err(|error| at(Problem::Unreadable(error)))?;
        let mut file: File =
            toml::from_str(&text).map_err(|error| at(Problem::syntax(&text, error)))?;
        file.queue
            .validate()
            .map_err(|error| at(Problem::Queue(error)))?;
        let from_variable = environment::override_routing(&mut file.routing, environment)?;
        file.routing
            .validate()
            .map_err(|error| at(Problem::Routing(error)))?;
        let admin = file.admin.map(|admin| admin.load(environment));
        let admin = admin
            .transpose()
            .map_err(|error| at(Problem::Admin(error)))?;
        let base = path.parent().unwrap_or(Path::new(""));
        let (upstream, client) = file
            .upstream
            .load(base)
            .map_err(|error| at(Problem::Upstream(error)))?;
        let endpoints: Result<Vec<Endpoint>, _> = file
            .backends
            .iter()
            .map(|backend| backend.endpoint(&file.health, environment))
            .collect();
        let endpoints = endpoints.map_err(at)?;
        let registry = Registry::new(endpoints).map_err(|error| at(Problem::Backends(error)))?;
        let clients_may_unload = file
            .swap
            .as_ref()
            .is_some_and(|swap| swap.clients_may_unload);
        let swap = file
            .swap
            .map(|swap| swap::load(swap.config, registry.endpoints(), environment));
        let swap = swap.transpose().map_err(|error| at(Problem::Swap(error)))?;

        let source = path.display().to_string();
        let mut warnings = routing_warnings(&file.routing, from_variable, &source);
        let has_models = swap.as_ref().is_some_and(|swap| !swap.models.is_empty());
        warnings.extend(registry_warnings(&registry, has_models, &source));
        Ok(Self {
            listen: file.listen,
            body_limit_bytes: file.body_limit_bytes,
            server: file.server,
            admin,
            queue: file.queue,
            routing: file.routing,
            upstream,
            client,
            registry,
            swap,
            clients_may_unload,
            warnings,
        })
    }

    /// The default configuration for the endpoints of `registry`.
    pub(crate) fn without_file(
        registry: Registry,
        mut routing: RoutingConfig,
        environment: Environment,
    ) -> Result<Self, InvalidConfig> {
        let from_variable = environment::override_routing(&mut routing, environment)?;
        Ok(Self {
            listen: default_listen(),
            body_limit_bytes: default_body_limit(),
            server: ServerConfig::default(),
            admin: None,
            queue: QueueConfig::default(),
            warnings: routing_warnings(&routing, from_variable, "demo"),
            routing,
            upstream: Upstream::default(),
            client: Client::new(),
            registry,
            swap: None,
            clients_may_unload: false,
        })
    }
}

fn routing_warnings(routing: &RoutingConfig, from_variable: bool, source: &str) -> Vec<String> {
    let warnings = routing.warnings().into_iter();
    let lines = warnings.map(|warning| match warning {
        RoutingWarning::UnknownStrategy { .. } if from_variable => {
            format!("{}: {warning}", environment::STRATEGY)
        }
        _ => format!("{source}: [routing]: {warning}"),
    });
    lines.collect()
}

/// `has_models`: whether `[swap]` has any.
fn registry_warnings(registry: &Registry, has_models: bool, source: &str) -> Vec<String> {
    let endpoints = registry.endpoints();
    if endpoints.is_empty() && !has_models {
        let problem = "no [[backends]]: every request for a model gets 503";
        return vec![format!("{source}: {problem}")];
    }
    let unused = endpoints
        .iter()
        .filter(|endpoint| endpoint.models.is_empty());
    let lines = unused.map(|endpoint| {
        let name = &endpoint.name;
        format!("{source}: backend {name:?} has no `models`: it gets no requests")
    });
    lines.collect()
}

/// The sections and keys of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "default_listen", deserialize_with = "listen")]
    listen: SocketAddr,
    #[serde(default = "default_body_limit")]
    body_limit_bytes: usize,
    #[serde(default)]
    server: ServerConfig,
    admin: Option<AdminSection>,
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
    swap: Option<SwapSection>,
    /// Reading this section is an error.
    #[serde(default, rename = "durable")]
    _durable: Unsupported,
}

/// Reads `[queue]`, without `concurrency`: the gateway's slots are those of its backends.
fn queue<'de, D: Deserializer<'de>>(deserializer: D) -> Result<QueueConfig, D::Error> {
    let queue = QueueConfig::deserialize(deserializer)?;
    if queue.concurrency == Concurrency::default() {
        Ok(queue)
    } else {
        Err(D::Error::custom(
            "`concurrency` is not allowed here: set `max_concurrent` of each backend",
        ))
    }
}

fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        D::Error::custom(format_args!(
            "{text:?} must be an IP address and a port, such as \"127.0.0.1:8080\""
        ))
    })
}

fn default_listen() -> SocketAddr {
    ([127, 0, 0, 1], 8080).into()
}

fn default_body_limit() -> usize {
    10 * 1024 * 1024
}

#[cfg(test)]
mod tests;
