//! The tenant of a request, by the key that its client sends.
//!
//! A verified request gets the headers that name its tenant and its level, in place of the client's own. So the waiting
//! room, the stored requests and their workers know it by the headers that they read anyway.

mod reread;

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::header::{AUTHORIZATION, CONNECTION, FORWARDED};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use tower_triage::queue::HeaderClassifier;
use tower_triage::{Priority, QueueConfig};
use tower_triage_durable::StorageLimits;

use crate::config::{Config, KEY_HEADERS, KeyHash, TenantConfig};
use crate::paths::is_at_or_below;
pub(crate) use reread::{Reread, reread};

const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The tenants in use, which a reload replaces. Clones share them.
#[derive(Clone)]
pub(crate) struct Tenants(Arc<ArcSwapOption<Table>>);

/// The tenants of a configuration with `[[tenants]]`.
struct Table {
    by_key: HashMap<KeyHash, Arc<Tenant>>,
    by_name: HashMap<String, Arc<Tenant>>,
    /// The limits on what each tenant stores, by name.
    storage: HashMap<Vec<u8>, StorageLimits>,
    tenant_header: HeaderName,
    priority_header: HeaderName,
    levels: HeaderClassifier,
    /// The names of the levels, highest first.
    level_names: Vec<HeaderValue>,
}

/// A tenant whose key has been verified.
pub(crate) struct Tenant {
    name: HeaderValue,
    /// The most urgent level that its requests may have.
    max_level: Priority,
    /// Empty: all.
    models: HashSet<String>,
    /// Empty: all.
    paths: Vec<String>,
}

/// The reason why a request is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Another server could read the path as another one.
    InvalidPath,
    NoKey,
    UnknownKey,
    /// The tenant may not use the path.
    Path,
}

impl Tenants {
    pub(crate) fn new(config: &Config) -> Result<Self, Box<dyn Error>> {
        let tenants = Self(Arc::default());
        let queue = config.waiting_room(config.durable.is_some())?;
        tenants.replace(&config.tenants, &queue)?;
        Ok(tenants)
    }

    /// Uses these tenants from now on, with the headers and levels of `queue`.
    pub(crate) fn replace(
        &self,
        tenants: &[TenantConfig],
        queue: &QueueConfig,
    ) -> Result<(), Box<dyn Error>> {
        let table = match tenants {
            [] => None,
            tenants => Some(Arc::new(Table::new(tenants, queue)?)),
        };
        self.0.store(table);
        Ok(())
    }

    /// Finds the tenant of a request at `path`, and marks the request as its own. The client's key is taken out. `None`
    /// without `[[tenants]]`.
    pub(crate) fn identify<B>(
        &self,
        request: &mut Request<B>,
    ) -> Result<Option<Arc<Tenant>>, Refused> {
        let table = self.0.load();
        let Some(table) = &*table else {
            return Ok(None);
        };
        let tenant = table.owner_of_key(request.headers())?;
        if !tenant.may_use_path(request.uri().path()) {
            return Err(Refused::Path);
        }
        table.mark(request.headers_mut(), tenant);
        Ok(Some(Arc::clone(tenant)))
    }

    /// Returns what a tenant may store. A tenant without limits of its own shares with all others. Requests without a tenant
    /// have no limit.
    pub(crate) fn storage_limits(&self, tenant: &[u8]) -> StorageLimits {
        let table = self.0.load();
        let own = table.as_ref().and_then(|table| table.storage.get(tenant));
        own.copied().unwrap_or(StorageLimits {
            bytes: None,
            files: None,
            shares: !tenant.is_empty(),
        })
    }

    /// Returns `true` if a request with these headers, which has been identified, may ask for the model of this very name.
    pub(crate) fn may_use_model(&self, headers: &HeaderMap, model: &str) -> bool {
        self.is_allowed(headers, |tenant| tenant.may_use_model(model))
    }

    /// Returns `true` if a request with these headers, which has been identified, may go to `path`.
    pub(crate) fn may_use_path(&self, headers: &HeaderMap, path: &str) -> bool {
        self.is_allowed(headers, |tenant| tenant.may_use_path(path))
    }

    /// Returns `true` if the tenant that the headers name allows a request. A stored request may outlive its tenant, and is then
    /// allowed nothing.
    fn is_allowed(&self, headers: &HeaderMap, allows: impl FnOnce(&Tenant) -> bool) -> bool {
        let table = self.0.load();
        let Some(table) = &*table else {
            return true;
        };
        let name = headers.get(&table.tenant_header);
        let tenant = name.and_then(|name| table.by_name.get(name.to_str().ok()?));
        tenant.is_some_and(|tenant| allows(tenant))
    }
}

impl Table {
    fn new(tenants: &[TenantConfig], queue: &QueueConfig) -> Result<Self, Box<dyn Error>> {
        let tenant_header = queue.tenant_header.as_ref();
        let tenant_header = tenant_header.ok_or("[queue] has no `tenant_header`")?;
        let levels = queue.classifier()?;
        let level_names = levels.levels().names();
        let level_names = level_names.map(|name| HeaderValue::from_bytes(name.as_bytes()));
        let mut table = Self {
            by_key: HashMap::new(),
            by_name: HashMap::new(),
            storage: HashMap::new(),
            tenant_header: HeaderName::try_from(tenant_header)?,
            priority_header: HeaderName::try_from(&queue.priority_header)?,
            level_names: level_names.collect::<Result<_, _>>()?,
            levels,
        };
        for config in tenants {
            let tenant = Arc::new(Tenant::new(config, &table.levels));
            let keys = config.keys.hashes();
            table
                .by_key
                .extend(keys.map(|key| (key, Arc::clone(&tenant))));
            let limits = StorageLimits {
                bytes: config.stored_bytes,
                files: config.stored_files,
                shares: true,
            };
            table.storage.insert(config.name.clone().into(), limits);
            table.by_name.insert(config.name.clone(), tenant);
        }
        Ok(table)
    }

    fn owner_of_key(&self, headers: &HeaderMap) -> Result<&Arc<Tenant>, Refused> {
        let mut refused = Refused::NoKey;
        for name in &KEY_HEADERS {
            let Some(key) = headers.get(name).and_then(|value| key(name, value)) else {
                continue;
            };
            match self.by_key.get(&KeyHash::of(key)) {
                Some(tenant) => return Ok(tenant),
                None => refused = Refused::UnknownKey,
            }
        }
        Err(refused)
    }

    /// Writes the tenant and the level of a request into its headers, in one line each, so that every server behind the gateway
    /// reads the same.
    fn mark(&self, headers: &mut HeaderMap, tenant: &Tenant) {
        for name in &KEY_HEADERS {
            headers.remove(name);
        }
        headers.insert(&self.tenant_header, tenant.name.clone());
        let level = self.levels.priority(headers).min(tenant.max_level);
        // A level that the configuration names is one of these.
        if let Some(name) = self.level_names.get(usize::from(level.0)) {
            headers.insert(&self.priority_header, name.clone());
        }
        // The client's own words about its way here; `Forward` writes them anew.
        for name in [FORWARDED, X_FORWARDED_HOST, X_FORWARDED_PROTO] {
            headers.remove(name);
        }
        self.drop_lookalikes(headers);
        self.unlist(headers);
    }

    /// Removes the headers that some servers take for those of the tenant and the level.
    fn drop_lookalikes(&self, headers: &mut HeaderMap) {
        let ours = [&self.tenant_header, &self.priority_header];
        let is_lookalike = |name: &&HeaderName| {
            let looks_like = |it: &&HeaderName| it.as_str() == name.as_str().replace('_', "-");
            name.as_str().contains('_') && !ours.contains(name) && ours.iter().any(looks_like)
        };
        let lookalikes: Vec<_> = headers.keys().filter(is_lookalike).cloned().collect();
        for name in lookalikes {
            headers.remove(name);
        }
    }

    /// Takes the headers of the tenant and the level out of `Connection`, because the headers that it lists are removed from
    /// stored requests and on the way to a backend.
    fn unlist(&self, headers: &mut HeaderMap) {
        let ours = [&self.tenant_header, &self.priority_header];
        let is_ours = |option: &[u8]| {
            let mut names = ours.iter().map(|name| name.as_str().as_bytes());
            names.any(|name| name.eq_ignore_ascii_case(option))
        };
        if !connection_options(headers).any(is_ours) {
            return;
        }
        let others = connection_options(headers).filter(|option| !is_ours(option));
        let others = others.collect::<Vec<_>>().join(&b", "[..]);
        // They are parts of valid values, so they are one, too.
        if let Ok(others) = HeaderValue::from_bytes(&others) {
            headers.insert(CONNECTION, others);
        }
    }
}

impl Tenant {
    fn new(config: &TenantConfig, levels: &HeaderClassifier) -> Self {
        let max_level = config.max_level.as_ref();
        let max_level = max_level.map(|level| levels.levels().parse(level.as_bytes()));
        Self {
            name: config.header.clone(),
            max_level: max_level.unwrap_or(Priority::HIGHEST),
            models: config.models.clone(),
            paths: config.paths.clone(),
        }
    }

    /// Returns `true` if the tenant may ask for the model of this very name.
    pub(crate) fn may_use_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.contains(model)
    }

    /// Returns `true` if the tenant may ask for every model.
    pub(crate) fn may_use_all_models(&self) -> bool {
        self.models.is_empty()
    }

    fn may_use_path(&self, path: &str) -> bool {
        let mut paths = self.paths.iter();
        self.paths.is_empty() || paths.any(|prefix| is_at_or_below(path, prefix))
    }
}

/// Returns the key in the header `name`, if there is one.
fn key<'a>(name: &HeaderName, value: &'a HeaderValue) -> Option<&'a [u8]> {
    let value = value.as_bytes();
    if *name != AUTHORIZATION {
        return Some(value);
    }
    let (scheme, key) = value.split_at_checked("Bearer ".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
    is_bearer.then(|| key.trim_ascii())
}

/// Returns the options in `Connection`, which may be names of headers.
fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(CONNECTION).into_iter();
    let options = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    options.map(<[u8]>::trim_ascii)
}

/// Logs that every client is served and its headers are believed, if there are no tenants.
pub(crate) fn log_trust(config: &Config, addr: SocketAddr) {
    if !config.tenants.is_empty() {
        return;
    }
    let queue = &config.queue;
    let headers = [Some(&queue.priority_header), queue.tenant_header.as_ref()];
    let headers: Vec<_> = headers.into_iter().flatten().map(String::as_str).collect();
    let message = format!(
        "no [[tenants]]: every client is served, and its headers {} are believed, so something in front has to set them",
        headers.join(" and ")
    );
    match addr.ip().to_canonical().is_loopback() {
        true => tracing::info!("{message}"),
        false => tracing::warn!("{message}; see \"Before you expose it\" in the gateway's README"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_each_clients_header() {
        let [bearer, anthropic, azure] = &KEY_HEADERS;
        for (name, value, expected) in [
            (bearer, "Bearer sk-1", Some("sk-1")),
            (bearer, "bearer  sk-1", Some("sk-1")),
            (bearer, "Basic c2stMQ==", None),
            (bearer, "sk-1", None),
            (anthropic, "sk-1", Some("sk-1")),
            (azure, "sk-1", Some("sk-1")),
        ] {
            let value = HeaderValue::from_static(value);
            assert_eq!(
                key(name, &value),
                expected.map(str::as_bytes),
                "{name}: {value:?}"
            );
        }
    }
}
