//! The `[[tenants]]` section: the clients that may use the gateway, their keys and their limits.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use tower_triage::admit::TenantLimits;
use tower_triage::{Discipline, PriorityLevels, QueueConfig};

use super::Environment;
use super::durable::with_batch_level;
use super::error::Problem;
use super::keys::{InvalidKeys, Keys, Listed};
use super::paths;

/// The headers in which clients send their keys: OpenAI's as a bearer token, Anthropic's, and Azure's.
pub(crate) static KEY_HEADERS: [HeaderName; 3] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
];

/// The section as it is written.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantSection {
    name: String,
    #[serde(default)]
    keys: Listed,
    keys_file: Option<PathBuf>,
    weight: Option<u32>,
    max_level: Option<String>,
    #[serde(default)]
    max_size: usize,
    #[serde(default)]
    concurrency: usize,
    #[serde(default)]
    stored_bytes: u64,
    #[serde(default)]
    stored_files: u64,
    #[serde(default)]
    models: Vec<String>,
    #[serde(default)]
    paths: Vec<String>,
}

/// The sources of tenants' keys.
#[derive(Clone, Copy)]
pub(super) struct KeySources<'a> {
    /// The folder of relative paths.
    pub(super) base: &'a Path,
    pub(super) environment: Environment,
    /// The tenants in use, whose keys stay in force while the disk of their file hangs.
    pub(super) running: &'a [TenantConfig],
}

/// A tenant: its keys, and what its requests may ask for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TenantConfig {
    pub(crate) name: String,
    /// The value of `tenant_header` for its requests.
    pub(crate) header: HeaderValue,
    pub(crate) keys: Keys,
    /// The name of the most urgent level that its requests may have; `None`: any.
    pub(crate) max_level: Option<HeaderValue>,
    /// Empty: all.
    pub(crate) models: HashSet<String>,
    /// Empty: all.
    pub(crate) paths: Vec<String>,
    /// The most bytes that it may store; `None`: as much as is left for all others.
    pub(crate) stored_bytes: Option<u64>,
    /// The most files that it may store; `None`: no limit.
    pub(crate) stored_files: Option<u64>,
    weight: Option<u32>,
    limits: TenantLimits,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidTenant {
    #[error("`name` is empty, has a space at an end, or has a character that is not ASCII")]
    Name,
    #[error("there are two tenants of the name {0:?}")]
    Duplicate(String),
    #[error("tenant {0:?}: {1}")]
    Keys(String, InvalidKeys),
    #[error("the tenants {0:?} and {1:?} have a key in common: each key must belong to one tenant")]
    SharedKey(String, String),
    #[error("tenant {0:?}: `weight` is 0: it must be at least 1")]
    Weight(String),
    #[error("tenant {name:?}: `max_level` is {level:?}: it must be one of {levels}")]
    Level {
        name: String,
        level: String,
        levels: String,
    },
    #[error("tenant {0:?}: in `paths`: {1}")]
    Path(String, String),
    #[error("tenant {name:?} also has an entry in `{key}` of [queue]: leave one of the two out")]
    Twice { name: String, key: &'static str },
    #[error(
        "tenants need `tenant_header` of [queue], which is \"none\": name a header, such as \"x-tenant-id\""
    )]
    NoHeader,
    #[error(
        "`tenant_header` of [queue] is {0:?}, which has another use: name another header, such as \"x-tenant-id\""
    )]
    Header(String),
}

impl TenantSection {
    pub(super) fn load(
        self,
        levels: &PriorityLevels,
        sources: KeySources<'_>,
    ) -> Result<TenantConfig, InvalidTenant> {
        let name = self.name;
        let header = HeaderValue::from_str(&name).map_err(|_| InvalidTenant::Name)?;
        // Lines of batches keep only the headers that are ASCII.
        if name.is_empty() || name.trim() != name || !name.is_ascii() {
            return Err(InvalidTenant::Name);
        }
        let running = sources.running.iter().find(|tenant| tenant.name == name);
        let keys = Keys::read(
            &self.keys,
            self.keys_file.as_deref(),
            sources.base,
            sources.environment,
            running.map(|tenant| &tenant.keys),
        );
        let keys = keys.map_err(|problem| InvalidTenant::Keys(name.clone(), problem))?;
        let max_level = self
            .max_level
            .map(|level| known_level(&name, level, levels));
        let paths = self.paths.into_iter().map(paths::checked);
        let paths = paths.collect::<Result<_, _>>();
        Ok(TenantConfig {
            max_level: max_level.transpose()?,
            paths: paths.map_err(|problem| InvalidTenant::Path(name.clone(), problem))?,
            models: self.models.into_iter().collect(),
            stored_bytes: Some(self.stored_bytes).filter(|bytes| *bytes > 0),
            stored_files: Some(self.stored_files).filter(|files| *files > 0),
            header,
            keys,
            weight: self.weight,
            limits: TenantLimits::default()
                .max_size(Some(self.max_size).filter(|size| *size > 0))
                .concurrency(Some(self.concurrency).filter(|slots| *slots > 0)),
            name,
        })
    }
}

impl TenantConfig {
    /// Adds the weight and the limits of this tenant to `queue`.
    pub(super) fn add_to(&self, queue: QueueConfig) -> Result<QueueConfig, InvalidTenant> {
        let name = || self.name.clone();
        let twice = |key| InvalidTenant::Twice { name: name(), key };
        let (room, tenant) = (&queue.room, self.name.as_bytes());
        let has_limits = self.limits != TenantLimits::default();
        if self.weight.is_some() && room.weights.contains_key(tenant) {
            return Err(twice("tenant_weights"));
        }
        if has_limits && room.tenant_limits.contains_key(tenant) {
            return Err(twice("tenant_limits"));
        }
        let queue = match self.weight {
            Some(0) => return Err(InvalidTenant::Weight(name())),
            Some(weight) => queue.weight(name(), weight),
            None => queue,
        };
        Ok(match has_limits {
            true => queue.tenant_limits(name(), self.limits),
            false => queue,
        })
    }
}

fn known_level(
    name: &str,
    level: String,
    levels: &PriorityLevels,
) -> Result<HeaderValue, InvalidTenant> {
    let mut names = levels.names();
    let known = names.find(|known| known.eq_ignore_ascii_case(&level));
    let header = known.and_then(|known| HeaderValue::from_bytes(known.as_bytes()).ok());
    match header {
        Some(header) => Ok(header),
        None => {
            let names: Vec<_> = levels.names().map(|name| format!("{name:?}")).collect();
            Err(InvalidTenant::Level {
                name: name.to_owned(),
                level,
                levels: names.join(", "),
            })
        }
    }
}

/// Returns the tenants of `sections`, and `queue` with their weights and limits; or a problem with its line.
pub(super) fn load_all(
    sections: Vec<(TenantSection, usize)>,
    mut queue: QueueConfig,
    is_durable: bool,
    sources: KeySources<'_>,
) -> Result<(Vec<TenantConfig>, QueueConfig), (usize, Problem)> {
    let of_tenants = |line| move |problem| (line, Problem::Tenants(problem));
    let levels = match is_durable {
        // An invalid level of batch work is reported with [durable].
        true => with_batch_level(queue.clone()).map(|queue| queue.room.levels),
        false => Ok(queue.room.levels.clone()),
    };
    let levels = levels.unwrap_or_else(|_| queue.room.levels.clone());
    let (mut tenants, mut lines) = (Vec::new(), Vec::new());
    for (section, line) in sections {
        check_header(&queue).map_err(of_tenants(line))?;
        let tenant = section.load(&levels, sources);
        let tenant = tenant.map_err(of_tenants(line))?;
        queue = tenant.add_to(queue).map_err(of_tenants(line))?;
        tenants.push(tenant);
        lines.push(line);
    }
    match conflict(&tenants) {
        Some((index, problem)) => Err(of_tenants(lines[index])(problem)),
        None => Ok((tenants, queue)),
    }
}

/// Returns a warning if tenants have weights that have no effect.
pub(super) fn warnings(
    tenants: &[TenantConfig],
    queue: &QueueConfig,
    source: &str,
) -> Option<String> {
    let has_weights = tenants.iter().any(|tenant| tenant.weight.is_some());
    (has_weights && queue.room.discipline != Discipline::Fair).then(|| {
        format!("{source}: [[tenants]]: `weight` has no effect without `discipline = \"fair\"` in [queue]")
    })
}

/// Checks that requests can be given a tenant's name in the header that `queue` reads.
pub(super) fn check_header(queue: &QueueConfig) -> Result<(), InvalidTenant> {
    let header = queue
        .tenant_header
        .as_ref()
        .ok_or(InvalidTenant::NoHeader)?;
    let has_other_use = |used: &str| header.eq_ignore_ascii_case(used);
    let mut of_keys = KEY_HEADERS.iter();
    if of_keys.any(|used| has_other_use(used.as_str())) || has_other_use(&queue.priority_header) {
        return Err(InvalidTenant::Header(header.clone()));
    }
    Ok(())
}

/// Returns the first problem between tenants, with the index of the later one.
pub(crate) fn conflict(tenants: &[TenantConfig]) -> Option<(usize, InvalidTenant)> {
    let (mut names, mut keys) = (HashSet::new(), HashMap::new());
    for (index, tenant) in tenants.iter().enumerate() {
        let name = &tenant.name;
        if !names.insert(name) {
            return Some((index, InvalidTenant::Duplicate(name.clone())));
        }
        for key in tenant.keys.hashes() {
            let owner = keys.insert(key, name).filter(|owner| *owner != name);
            if let Some(owner) = owner {
                let shared = InvalidTenant::SharedKey(owner.clone(), name.clone());
                return Some((index, shared));
            }
        }
    }
    None
}
