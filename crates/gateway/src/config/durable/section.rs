//! The keys of `[durable]` with their defaults, as they are written.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::Role;
use crate::config::seconds;

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct DurableSection {
    store: Store,
    pub(super) path: PathBuf,
    #[serde(deserialize_with = "secret")]
    pub(super) url: Option<String>,
    #[serde(deserialize_with = "secret")]
    pub(super) drain_url: Option<String>,
    pub(super) queue: String,
    pub(super) role: Role,
    #[serde(deserialize_with = "above_0")]
    pub(super) max_size: u64,
    pub(super) max_size_per_tenant: u64,
    #[serde(rename = "max_wait_seconds", deserialize_with = "seconds::positive")]
    pub(super) max_wait: Duration,
    #[serde(deserialize_with = "crate::config::body_limit")]
    pub(super) body_limit_bytes: usize,
    #[serde(deserialize_with = "above_0")]
    pub(super) file_limit_bytes: u64,
    #[serde(
        rename = "file_retention_seconds",
        deserialize_with = "seconds::positive"
    )]
    pub(super) file_retention: Duration,
    on_crash: Crash,
    /// `None` if it is not written.
    pub(super) max_attempts: Option<u32>,
    #[serde(rename = "backoff_seconds", deserialize_with = "seconds::positive")]
    pub(super) backoff: Duration,
    #[serde(rename = "max_backoff_seconds", deserialize_with = "seconds::positive")]
    pub(super) max_backoff: Duration,
    #[serde(
        rename = "attempt_timeout_seconds",
        deserialize_with = "seconds::positive"
    )]
    pub(super) attempt_timeout: Duration,
    /// `None` if requests without `Cancel-After` have no deadline, which is written as 0.
    #[serde(rename = "cancel_after_seconds", deserialize_with = "seconds::above_0")]
    pub(super) cancel_after: Option<Duration>,
    #[serde(rename = "lease_seconds", deserialize_with = "seconds::positive")]
    pub(super) lease: Duration,
    #[serde(rename = "retention_seconds", deserialize_with = "seconds::positive")]
    pub(super) retention: Duration,
    pub(super) shared_limits: bool,
    pub(super) replicas: u32,
    #[serde(
        rename = "replica_timeout_seconds",
        deserialize_with = "seconds::positive"
    )]
    pub(super) replica_timeout: Duration,
    #[serde(deserialize_with = "secrets")]
    pub(super) webhook_secret: Vec<String>,
    pub(super) webhook_allow_private: bool,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Store {
    Embedded,
    Redis,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Crash {
    Fail,
    Retry,
}

impl Default for DurableSection {
    fn default() -> Self {
        Self {
            store: Store::Embedded,
            path: "triage-data".into(),
            url: None,
            drain_url: None,
            queue: "default".to_owned(),
            role: Role::Both,
            max_size: 1_000_000,
            max_size_per_tenant: 0,
            max_wait: Duration::from_secs(600),
            body_limit_bytes: 100 << 20,
            file_limit_bytes: 200 << 20,
            file_retention: Duration::from_secs(30 * 24 * 60 * 60),
            on_crash: Crash::Fail,
            max_attempts: None,
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(60),
            attempt_timeout: Duration::from_secs(3_600),
            cancel_after: Some(Duration::from_secs(7 * 24 * 60 * 60)),
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(24 * 60 * 60),
            shared_limits: false,
            replicas: 0,
            replica_timeout: Duration::from_secs(1),
            webhook_secret: Vec::new(),
            webhook_allow_private: false,
        }
    }
}

impl DurableSection {
    pub(super) fn is_in_redis(&self) -> bool {
        self.store == Store::Redis
    }

    pub(super) fn retries_after_crash(&self) -> bool {
        self.on_crash == Crash::Retry
    }
}

fn above_0<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(D::Error::custom("0 must be a number above 0")),
        number => Ok(number),
    }
}

/// Reads one text, or a list of some. Written by hand, as [`secret`] is.
fn secrets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let one = |value| match value {
        toml::Value::String(text) => Some(text),
        _ => None,
    };
    let texts = match toml::Value::deserialize(deserializer)? {
        toml::Value::Array(values) => values.into_iter().map(one).collect(),
        value => one(value).map(|text| vec![text]),
    };
    texts.ok_or_else(|| D::Error::custom("it must be a string, or a list of strings"))
}

/// Written by hand, because errors of a derived impl show the invalid value.
fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => Ok(Some(text)),
        _ => Err(D::Error::custom("it must be a string")),
    }
}
