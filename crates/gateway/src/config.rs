//! The configuration file, in the format of `gateway.example.toml`.
//!
//! An unknown key or an invalid value is an error that names the file, the line and the key: a misspelt key that
//! is ignored would only be noticed in production. A [`Config`] has passed every check and can be served.

mod admin;
mod backend;
mod certificate;
mod durable;
mod environment;
mod error;
mod expand;
pub(crate) mod files;
mod headers;
mod health;
mod keys;
mod lines;
mod load;
mod paths;
mod seconds;
mod server;
mod swap;
mod tenants;
mod upstream;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use toml::Spanned;
use tower_triage::QueueConfig;
use tower_triage::endpoints::{Endpoint, Registry};
use tower_triage::queue::Concurrency;
use tower_triage::route::RoutingConfig;
use tower_triage::swap::SwapConfig;

use admin::AdminSection;
pub(crate) use admin::{AdminConfig, Token};
use backend::Backend;
use certificate::TlsFiles;
pub(crate) use certificate::{Certificate, scheme};
pub(crate) use durable::{BATCH_LEVEL, DurableConfig, Role, Secret, StoreChoice};
use durable::{DurableSection, InvalidDurable, with_batch_level};
pub(crate) use environment::{Environment, process};
pub(crate) use error::InvalidConfig;
use error::Problem;
use health::Health;
pub(crate) use keys::KeyHash;
pub(crate) use paths::Paths;
pub(crate) use server::{Origin, ServerConfig};
use swap::SwapSection;
pub(crate) use swap::unknown_capabilities;
pub(crate) use tenants::{KEY_HEADERS, TenantConfig, conflict};
use tenants::{KeySources, TenantSection};
pub(crate) use upstream::{Client, StoredClient, Upstream};

const SERVER: &str = "[server]";
const ADMIN: &str = "[admin]";

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) body_limit_bytes: usize,
    pub(crate) server: ServerConfig,
    /// The certificate of the main address, which may change without a restart. `None`: plain HTTP.
    pub(crate) certificate: Option<Certificate>,
    /// The certificate of the address of `admin`.
    pub(crate) admin_certificate: Option<Certificate>,
    /// `None`: the operator's pages are on the main address.
    pub(crate) admin: Option<AdminConfig>,
    /// With the weights and limits of `tenants`.
    pub(crate) queue: QueueConfig,
    /// Empty: no keys are asked for.
    pub(crate) tenants: Vec<TenantConfig>,
    pub(crate) routing: RoutingConfig,
    pub(crate) upstream: Upstream,
    pub(crate) client: Client,
    pub(crate) registry: Registry,
    /// `None`: no model is started by the gateway.
    pub(crate) swap: Option<SwapConfig>,
    /// llama.cpp's and llama-swap's paths to load and unload models are on the main address, too.
    pub(crate) clients_may_unload: bool,
    /// `None`: no request is stored.
    pub(crate) durable: Option<DurableConfig>,
    /// Settings that are allowed but probably mistakes, one line each.
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Reads and checks the file at `path`.
    pub(crate) fn read(path: &Path, environment: Environment) -> Result<Self, InvalidConfig> {
        let at = |line, problem| InvalidConfig::in_file(path, line, problem);
        let text = files::read_once(path).map_err(|error| at(None, Problem::Unreadable(error)))?;
        Self::parse(text, path, environment)
    }

    /// Reads and checks the file at `path` again, while `running` are the tenants in use. It blocks, but not for as long as a
    /// disk may hang.
    pub(crate) fn reread(
        path: &Path,
        environment: Environment,
        running: &[TenantConfig],
    ) -> Result<Self, InvalidConfig> {
        let text = files::read_text(path);
        let text =
            text.map_err(|error| InvalidConfig::in_file(path, None, Problem::Unreadable(error)))?;
        Self::parse_beside(text, path, environment, running)
    }

    /// Checks `text`, which is the content of the file at `path`.
    pub(crate) fn parse(
        text: String,
        path: &Path,
        environment: Environment,
    ) -> Result<Self, InvalidConfig> {
        Self::parse_beside(text, path, environment, &[])
    }

    fn parse_beside(
        text: String,
        path: &Path,
        environment: Environment,
        running: &[TenantConfig],
    ) -> Result<Self, InvalidConfig> {
        let at = |line, problem| InvalidConfig::in_file(path, line, problem);
        let file: File =
            toml::from_str(&text).map_err(|error| at(None, Problem::syntax(&text, error)))?;
        let (Queue(queue), queue_line) = lines::section(file.queue, &text);
        let (mut routing, routing_line) = lines::section(file.routing, &text);
        let (upstream, upstream_line) = lines::section(file.upstream, &text);
        let (mut server, server_line) = lines::section(file.server, &text);
        let (mut admin, admin_line) = lines::optional(file.admin, &text);
        let (swap, swap_line) = lines::optional(file.swap, &text);
        let (durable, durable_line) = lines::optional(file.durable, &text);
        let backends = lines::each(file.backends, &text);
        server
            .check_body_memory(file.body_limit_bytes)
            .map_err(|error| at(server_line, Problem::Server(error)))?;
        queue
            .validate()
            .map_err(|error| at(queue_line, Problem::Queue(error)))?;
        let base = path.parent().unwrap_or(Path::new(""));
        let load = |tls: Option<TlsFiles>, section, line| {
            let loaded = tls.map(|files| files.load(base)).transpose();
            loaded.map_err(|error| at(line, Problem::Tls(section, error)))
        };
        let certificate = load(server.tls.take(), SERVER, server_line)?;
        let admin_tls = admin.as_mut().and_then(|admin| admin.tls.take());
        let admin_certificate = load(admin_tls, ADMIN, admin_line)?;
        let is_durable = durable.is_some();
        let tenants = lines::each(file.tenants, &text);
        let sources = KeySources {
            base,
            environment,
            running,
        };
        let (tenants, queue) = tenants::load_all(tenants, queue, is_durable, sources)
            .map_err(|(line, problem)| at(Some(line), problem))?;
        environment::override_routing(&mut routing, environment)?;
        routing
            .validate()
            .map_err(|error| at(routing_line, Problem::Routing(error)))?;
        let admin = admin.map(|admin| admin.load(environment));
        let admin = admin
            .transpose()
            .map_err(|error| at(admin_line, Problem::Admin(error)))?;
        let (upstream, client) = upstream
            .load(base)
            .map_err(|error| at(upstream_line, Problem::Upstream(error)))?;
        let endpoints = backends.iter().map(|(backend, line)| {
            let endpoint = backend.endpoint(&file.health, environment);
            endpoint.map_err(|problem| at(Some(*line), problem))
        });
        let endpoints: Vec<Endpoint> = endpoints.collect::<Result<_, _>>()?;
        let names: Vec<_> = endpoints
            .iter()
            .map(|endpoint| endpoint.name.clone())
            .collect();
        let registry = Registry::new(endpoints).map_err(|error| {
            let index = backend::index(&error, &names);
            let line = index.and_then(|index| Some(backends.get(index)?.1));
            at(line, Problem::Backends(error))
        })?;
        check_default_backend(&routing, &registry).map_err(|problem| at(routing_line, problem))?;
        let clients_may_unload = swap.as_ref().is_some_and(|it| it.own.clients_may_unload);
        let swap = swap.map(|SwapSection { config, own }| {
            swap::load(config, &own.macros, registry.endpoints(), environment)
        });
        let swap = swap.transpose().map_err(|error| {
            let line = lines::of_key(&text, &error.path()).or(swap_line);
            at(line, Problem::Swap(error))
        })?;
        let durable = durable.map(|durable| {
            with_batch_level(queue.clone())?;
            durable.load(base, &queue, environment)
        });
        let durable = durable
            .transpose()
            .map_err(|error| at(durable_line, Problem::Durable(error)))?;
        let (mut durable, durable_warnings) = durable.unzip();
        if let Some(durable) = &mut durable {
            // A larger body could never be read.
            durable.body_limit_bytes = durable.body_limit_bytes.min(server.body_memory_bytes);
        }

        let source = path.display().to_string();
        let mut warnings = routing_warnings(&routing, &source);
        let has_models = swap.as_ref().is_some_and(|swap| !swap.models.is_empty());
        let is_front = durable
            .as_ref()
            .is_some_and(|durable| durable.role == Role::Front);
        warnings.extend(registry_warnings(&registry, has_models, is_front, &source));
        warnings.extend(unknown_models(
            &routing,
            &registry,
            swap.as_ref(),
            &tenants,
            &source,
        ));
        let of_swap = swap.iter().flat_map(SwapConfig::warnings);
        warnings.extend(of_swap.map(|line| format!("{source}: [swap]: {line}")));
        warnings.extend(tenants::warnings(&tenants, &queue, &source));
        let of_durable = durable_warnings.into_iter().flatten();
        warnings.extend(of_durable.map(|line| format!("{source}: [durable]: {line}")));
        Ok(Self {
            listen: file.listen,
            body_limit_bytes: file.body_limit_bytes,
            server,
            certificate,
            admin_certificate,
            admin,
            queue,
            tenants,
            routing,
            upstream,
            client,
            registry,
            swap,
            clients_may_unload,
            durable,
            warnings,
        })
    }

    /// Returns the certificate of each address, by the section that has its `tls`.
    pub(crate) fn certificates(&self) -> [(&'static str, Option<&Certificate>); 2] {
        [
            (SERVER, self.certificate.as_ref()),
            (ADMIN, self.admin_certificate.as_ref()),
        ]
    }

    /// Returns the waiting room's configuration; that of a gateway which stores requests has the level of batch work.
    pub(crate) fn waiting_room(&self, is_durable: bool) -> Result<QueueConfig, InvalidDurable> {
        match is_durable {
            true => with_batch_level(self.queue.clone()),
            false => Ok(self.queue.clone()),
        }
    }

    /// The default configuration for the endpoints of `registry`.
    pub(crate) fn without_file(
        registry: Registry,
        mut routing: RoutingConfig,
        environment: Environment,
    ) -> Result<Self, InvalidConfig> {
        environment::override_routing(&mut routing, environment)?;
        Ok(Self {
            listen: default_listen(),
            body_limit_bytes: default_body_limit(),
            server: ServerConfig::default(),
            certificate: None,
            admin_certificate: None,
            admin: None,
            queue: QueueConfig::default(),
            tenants: Vec::new(),
            warnings: routing_warnings(&routing, "demo"),
            routing,
            upstream: Upstream::default(),
            client: Client::new(),
            registry,
            swap: None,
            clients_may_unload: false,
            durable: None,
        })
    }
}

/// Checks that `default_backend` names a backend.
fn check_default_backend(routing: &RoutingConfig, registry: &Registry) -> Result<(), Problem> {
    let Some(name) = &routing.default_endpoint else {
        return Ok(());
    };
    let mut endpoints = registry.endpoints().iter();
    match endpoints.any(|endpoint| endpoint.name == *name) {
        true => Ok(()),
        false => Err(Problem::DefaultBackend(name.clone())),
    }
}

fn routing_warnings(routing: &RoutingConfig, source: &str) -> Vec<String> {
    let warnings = routing.warnings().into_iter();
    let lines = warnings.map(|warning| format!("{source}: [routing]: {warning}"));
    lines.collect()
}

/// `has_models`: whether `[swap]` has any.
fn registry_warnings(
    registry: &Registry,
    has_models: bool,
    is_front: bool,
    source: &str,
) -> Vec<String> {
    let endpoints = registry.endpoints();
    if endpoints.is_empty() && !has_models {
        let problem = match is_front {
            false => "no [[backends]]: every request for a model gets 503",
            true => {
                "no [[backends]]: this front stores requests for any model name, also those that no worker serves; list \
                 the workers' [[backends]] here, too, and it refuses them"
            }
        };
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

/// Names in `[routing]` and `[[tenants]]` that lead to no model.
fn unknown_models(
    routing: &RoutingConfig,
    registry: &Registry,
    swap: Option<&SwapConfig>,
    tenants: &[TenantConfig],
    source: &str,
) -> Vec<String> {
    let started = swap.into_iter().flat_map(|swap| &swap.models);
    let started = started.map(|model| model.model.name.as_str());
    let models: HashSet<&str> = registry.models().chain(started).collect();
    let is_unknown = |name: &&String| !models.contains(name.as_str());
    let line = |what: String| {
        format!("{source}: [routing]: {what}, a model that no backend and no [swap] has")
    };
    // An alias of an alias has a warning of its own.
    let aliases = routing
        .aliases
        .iter()
        .map(|(name, alias)| (name, &alias.model))
        .filter(|(_, target)| is_unknown(target) && !routing.aliases.contains_key(*target));
    let aliases = aliases.map(|(alias, to)| line(format!("the alias {alias:?} stands for {to:?}")));
    let fallbacks = routing.fallbacks.iter().flat_map(|(model, chain)| {
        let unknown = chain.iter().filter(is_unknown);
        unknown.map(move |to| line(format!("the fallbacks of {model:?} name {to:?}")))
    });
    let rooms = routing.rooms.keys().filter(is_unknown);
    let rooms = rooms.map(|model| line(format!("there is a room for {model:?}")));
    let of_tenants = tenants.iter().flat_map(|tenant| {
        let unknown = tenant.models.iter().filter(|name| {
            !models.contains(name.as_str()) && !routing.aliases.contains_key(*name)
        });
        let tenant = &tenant.name;
        unknown.map(move |name| {
            format!("{source}: [[tenants]]: {tenant:?} may use {name:?}, a model that no backend and no [swap] has")
        })
    });
    let of_routing = aliases.chain(fallbacks).chain(rooms);
    of_routing.chain(of_tenants).collect()
}

/// The sections and keys of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "default_listen", deserialize_with = "listen")]
    listen: SocketAddr,
    #[serde(default = "default_body_limit", deserialize_with = "body_limit")]
    body_limit_bytes: usize,
    server: Option<Spanned<ServerConfig>>,
    admin: Option<Spanned<AdminSection>>,
    queue: Option<Spanned<Queue>>,
    #[serde(default)]
    tenants: Vec<Spanned<TenantSection>>,
    routing: Option<Spanned<RoutingConfig>>,
    upstream: Option<Spanned<Upstream>>,
    #[serde(default)]
    health: Health,
    #[serde(default)]
    backends: Vec<Spanned<Backend>>,
    swap: Option<Spanned<SwapSection>>,
    durable: Option<Spanned<DurableSection>>,
}

/// `[queue]`, without `concurrency`: the gateway's slots are those of its backends.
#[derive(Default)]
struct Queue(QueueConfig);

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let queue = QueueConfig::deserialize(deserializer)?;
        if queue.concurrency == Concurrency::default() {
            Ok(Self(queue))
        } else {
            Err(D::Error::custom(
                "`concurrency` is not allowed here: set `max_concurrent` of each backend",
            ))
        }
    }
}

fn body_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match usize::deserialize(deserializer)? {
        0 => Err(D::Error::custom("0 must be a number of bytes above 0")),
        bytes => Ok(bytes),
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
mod fuzz;
#[cfg(test)]
mod tests;
