//! `[health]`, and what a backend says of its own.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::seconds;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Health {
    #[serde(deserialize_with = "path")]
    path: String,
    #[serde(rename = "interval_seconds", deserialize_with = "seconds::positive")]
    interval: Duration,
    #[serde(rename = "timeout_seconds", deserialize_with = "seconds::positive")]
    timeout: Duration,
    unhealthy_after: NonZeroU32,
    healthy_after: NonZeroU32,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            path: "/health".to_owned(),
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            unhealthy_after: NonZeroU32::new(3).expect("not zero"),
            healthy_after: NonZeroU32::new(2).expect("not zero"),
        }
    }
}

/// `health = false`, or any keys of `[health]`.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BackendHealth {
    Unchecked,
    Checked(Overrides),
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Overrides {
    #[serde(deserialize_with = "some_path")]
    path: Option<String>,
    #[serde(
        rename = "interval_seconds",
        deserialize_with = "seconds::some_positive"
    )]
    interval: Option<Duration>,
    #[serde(
        rename = "timeout_seconds",
        deserialize_with = "seconds::some_positive"
    )]
    timeout: Option<Duration>,
    unhealthy_after: Option<NonZeroU32>,
    healthy_after: Option<NonZeroU32>,
}

impl BackendHealth {
    /// How this backend is checked, if it is.
    pub(super) fn over(&self, defaults: &Health) -> Option<Health> {
        match self {
            Self::Unchecked => None,
            Self::Checked(own) => Some(Health {
                path: own.path.clone().unwrap_or_else(|| defaults.path.clone()),
                interval: own.interval.unwrap_or(defaults.interval),
                timeout: own.timeout.unwrap_or(defaults.timeout),
                unhealthy_after: own.unhealthy_after.unwrap_or(defaults.unhealthy_after),
                healthy_after: own.healthy_after.unwrap_or(defaults.healthy_after),
            }),
        }
    }
}

impl Default for BackendHealth {
    fn default() -> Self {
        Self::Checked(Overrides::default())
    }
}

impl<'de> Deserialize<'de> for BackendHealth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BackendHealthVisitor)
    }
}

/// By hand, because an untagged enum would not say which key is wrong.
struct BackendHealthVisitor;

impl<'de> Visitor<'de> for BackendHealthVisitor {
    type Value = BackendHealth;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`false`, or a table with keys of [health]")
    }

    fn visit_bool<E: Error>(self, checked: bool) -> Result<BackendHealth, E> {
        Ok(if checked {
            BackendHealth::default()
        } else {
            BackendHealth::Unchecked
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BackendHealth, A::Error> {
        Overrides::deserialize(MapAccessDeserializer::new(map)).map(BackendHealth::Checked)
    }
}

fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let path = String::deserialize(deserializer)?;
    if path.starts_with('/') {
        Ok(path)
    } else {
        Err(D::Error::custom(format_args!(
            "`path` {path:?} must begin with /"
        )))
    }
}

fn some_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    path(deserializer).map(Some)
}
