//! The `[durable]` section: requests that are stored, and survive the process.

mod section;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tower_triage::admit::InvalidPriorityLevels;
use tower_triage::{Discipline, PriorityLevels, QueueConfig};
use tower_triage_durable::webhooks::WebhookSecret;
use tower_triage_durable::{OnCrash, RetryPolicy, StoreConfig};
use tower_triage_redis::{ConnectError, RedisConfig};

use super::Environment;
use super::expand::{InvalidReference, expand};
pub(super) use section::DurableSection;

/// The level of batch work, which is the lowest one unless `[queue]` names it.
pub(crate) const BATCH_LEVEL: &str = "batch";

/// Settings of stored requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DurableConfig {
    pub(crate) store: StoreChoice,
    pub(crate) role: Role,
    pub(crate) max_size: u64,
    /// 0 for no limit of a tenant's own.
    pub(crate) max_size_per_tenant: u64,
    /// The longest time for which a stored request's client may be held.
    pub(crate) max_wait: Duration,
    pub(crate) body_limit_bytes: usize,
    pub(crate) file_limit_bytes: u64,
    /// The time for which a file is kept that says none itself.
    pub(crate) file_retention: Duration,
    pub(crate) on_crash: OnCrash,
    pub(crate) retry: RetryPolicy,
    pub(crate) attempt_timeout: Duration,
    /// The time to live of a request that sets none; `None` for no limit.
    pub(crate) cancel_after: Option<Duration>,
    pub(crate) retention: Duration,
    /// The keys that webhooks are signed with; none is sent without any.
    pub(crate) webhook_secrets: Vec<Secret>,
    pub(crate) webhook_allow_private: bool,
}

/// The store of a gateway, with the settings that only this one has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StoreChoice {
    Embedded { path: PathBuf },
    Redis(RedisChoice),
}

/// The settings of a store in Redis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RedisChoice {
    pub(crate) url: Secret,
    /// The Redis that is emptied.
    pub(crate) drain: Option<Secret>,
    /// The name under which gateways share their requests.
    pub(crate) queue: String,
    pub(crate) lease: Duration,
    /// The number of replicas that must have a request before its receipt.
    pub(crate) replicas: u32,
    pub(crate) replica_timeout: Duration,
    /// `true` if gateways share the slots of endpoints of the same name.
    pub(crate) shared_limits: bool,
}

/// The part of the work that a gateway does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// It stores all requests, and runs none.
    Front,
    /// It runs stored requests, and stores none.
    Worker,
    Both,
}

/// A text that is never shown.
#[derive(Clone, PartialEq)]
pub(crate) struct Secret(String);

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidDurable {
    #[error("`{key}` {problem}")]
    Reference {
        key: &'static str,
        problem: InvalidReference,
    },
    #[error("`store = \"redis\"` needs `url`, such as \"redis://127.0.0.1:6379\"")]
    NoUrl,
    #[error("`{key}`: {problem}")]
    Url {
        key: &'static str,
        problem: ConnectError,
    },
    #[error("`drain_url` is the same as `url`: it names the Redis that `url` replaces")]
    DrainedIntoItself,
    #[error("`{0}` needs `store = \"redis\"`: remove it, or set the store")]
    OnlyRedis(&'static str),
    #[error(
        "`max_attempts` is {0}: it counts starts altogether, so with `on_crash = \"retry\"` it must be at least 2"
    )]
    MaxAttempts(u32),
    #[error("`max_attempts` is 0: it counts starts altogether, so it must be at least 1")]
    NoAttempt,
    #[error("`path` is empty: name a folder, such as \"triage-data\"")]
    Path,
    #[error("`queue` is {0:?}: it must be a name of letters, digits, `-`, `_` and `.`")]
    Queue(String),
    #[error(
        "`webhook_secret` must be \"whsec_\" and 24 to 64 bytes in base64, such as that of `echo whsec_$(openssl rand \
         -base64 32)`"
    )]
    WebhookSecret,
    #[error("the level \"{BATCH_LEVEL}\" can't be added to `priorities` of [queue]: {0}")]
    Level(InvalidPriorityLevels),
}

impl DurableConfig {
    /// Returns the settings that all stores share. The order is that of `queue`.
    pub(crate) fn store_config(&self, queue: &QueueConfig) -> StoreConfig {
        let config = StoreConfig::default()
            .max_size(self.max_size)
            .max_size_per_tenant(self.max_size_per_tenant)
            .on_crash(self.on_crash)
            .retention(self.retention)
            .order(queue.room.clone());
        match &self.store {
            StoreChoice::Embedded { .. } => config,
            StoreChoice::Redis(redis) => config.lease(redis.lease),
        }
    }
}

impl DurableSection {
    /// Checks the section, and returns it with warnings. A relative `path` starts at `base`, the folder of the
    /// configuration.
    pub(super) fn load(
        self,
        base: &Path,
        queue: &QueueConfig,
        environment: Environment,
    ) -> Result<(DurableConfig, Vec<String>), InvalidDurable> {
        let mut warnings = Vec::new();
        if self.is_in_redis() && queue.room.discipline == Discipline::Deadline {
            let only = "the store in Redis has no order by deadline: `discipline` of [queue] holds for requests that are \
                        not stored";
            warnings.push(only.to_owned());
        }
        let on_crash = self.on_crash()?;
        let secrets = self.webhook_secret.iter();
        let secrets = secrets.map(|text| webhook_secret_of(text, environment));
        Ok((
            DurableConfig {
                store: self.store_choice(base, environment, &mut warnings)?,
                role: self.role,
                max_size: self.max_size,
                max_size_per_tenant: self.max_size_per_tenant,
                max_wait: self.max_wait,
                body_limit_bytes: self.body_limit_bytes,
                file_limit_bytes: self.file_limit_bytes,
                file_retention: self.file_retention,
                on_crash,
                retry: self.retry()?,
                attempt_timeout: self.attempt_timeout,
                cancel_after: self.cancel_after,
                retention: self.retention,
                webhook_secrets: secrets.collect::<Result<_, _>>()?,
                webhook_allow_private: self.webhook_allow_private,
            },
            warnings,
        ))
    }

    fn on_crash(&self) -> Result<OnCrash, InvalidDurable> {
        if !self.retries_after_crash() {
            return Ok(OnCrash::Fail);
        }
        match self.max_attempts.unwrap_or(2) {
            max_attempts @ (0 | 1) => Err(InvalidDurable::MaxAttempts(max_attempts)),
            max_attempts => Ok(OnCrash::Retry { max_attempts }),
        }
    }

    /// Returns the rule for requests that failed. They end with their first attempt unless `max_attempts` is written.
    fn retry(&self) -> Result<RetryPolicy, InvalidDurable> {
        match self.max_attempts {
            Some(0) => Err(InvalidDurable::NoAttempt),
            attempts => Ok(RetryPolicy::attempts(attempts.unwrap_or(1))
                .backoff(self.backoff, self.max_backoff)),
        }
    }

    fn store_choice(
        &self,
        base: &Path,
        environment: Environment,
        warnings: &mut Vec<String>,
    ) -> Result<StoreChoice, InvalidDurable> {
        if !self.is_in_redis() {
            return self.embedded(base, warnings);
        }
        let url = self.url.as_deref().ok_or(InvalidDurable::NoUrl)?;
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.queue.is_empty() || !self.queue.chars().all(is_of_name) {
            return Err(InvalidDurable::Queue(self.queue.clone()));
        }
        let url = redis_url("url", url, environment)?;
        let drain = self.drain_url.as_deref();
        let drain = drain
            .map(|drain| redis_url("drain_url", drain, environment))
            .transpose()?;
        if drain.as_ref() == Some(&url) {
            return Err(InvalidDurable::DrainedIntoItself);
        }
        Ok(StoreChoice::Redis(RedisChoice {
            url,
            drain,
            queue: self.queue.clone(),
            lease: self.lease,
            replicas: self.replicas,
            replica_timeout: self.replica_timeout,
            shared_limits: self.shared_limits,
        }))
    }

    /// A key that promises something which only Redis can hold is an error.
    fn embedded(
        &self,
        base: &Path,
        warnings: &mut Vec<String>,
    ) -> Result<StoreChoice, InvalidDurable> {
        for (key, is_set) in [
            ("url", self.url.is_some()),
            ("drain_url", self.drain_url.is_some()),
            ("shared_limits", self.shared_limits),
            ("replicas", self.replicas > 0),
        ] {
            if is_set {
                return Err(InvalidDurable::OnlyRedis(key));
            }
        }
        if self.path.as_os_str().is_empty() {
            return Err(InvalidDurable::Path);
        }
        let half = match self.role {
            Role::Front => Some(("front", "stored requests are not run")),
            Role::Worker => Some(("worker", "no request is stored")),
            Role::Both => None,
        };
        if let Some((role, problem)) = half {
            warnings.push(format!(
                "`role = \"{role}\"`, but the embedded store is used by one process at a time: while it is this one, \
                 {problem}"
            ));
        }
        Ok(StoreChoice::Embedded {
            path: base.join(&self.path),
        })
    }
}

/// Expands and checks an address. Errors do not show it, because it may have a password.
fn redis_url(
    key: &'static str,
    text: &str,
    environment: Environment,
) -> Result<Secret, InvalidDurable> {
    let url = expanded(key, text, environment)?;
    match RedisConfig::new(&url).validate() {
        Ok(()) => Ok(Secret(url)),
        Err(problem) => Err(InvalidDurable::Url { key, problem }),
    }
}

/// Expands and checks a key in the form of Standard Webhooks.
fn webhook_secret_of(text: &str, environment: Environment) -> Result<Secret, InvalidDurable> {
    let secret = expanded("webhook_secret", text, environment)?;
    match WebhookSecret::parse(&secret) {
        Ok(_) => Ok(Secret(secret)),
        Err(_) => Err(InvalidDurable::WebhookSecret),
    }
}

fn expanded(
    key: &'static str,
    text: &str,
    environment: Environment,
) -> Result<String, InvalidDurable> {
    expand(text, environment).map_err(|problem| InvalidDurable::Reference { key, problem })
}

/// Adds the level of batch work to `queue`, as the lowest one, unless there is a level of that name.
pub(super) fn with_batch_level(mut queue: QueueConfig) -> Result<QueueConfig, InvalidDurable> {
    let levels = &queue.room.levels;
    if levels
        .names()
        .any(|name| name.eq_ignore_ascii_case(BATCH_LEVEL))
    {
        return Ok(queue);
    }
    let names = levels.names().chain([BATCH_LEVEL]).map(str::to_owned);
    let default = levels.name(levels.default_priority());
    let levels = PriorityLevels::new(names.collect::<Vec<_>>(), default);
    queue.room.levels = levels.map_err(InvalidDurable::Level)?;
    Ok(queue)
}

impl Secret {
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
