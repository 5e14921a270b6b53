//! The `[health]` section, and the key `health` of a backend.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use http::uri::PathAndQuery;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use tower_triage::endpoints::HealthCheck;

use super::seconds;

/// Settings of health checks. Keys that are absent keep the value of the next more general place.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Health {
    #[serde(deserialize_with = "path")]
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

impl Health {
    fn apply_to(&self, check: HealthCheck) -> HealthCheck {
        HealthCheck::new(self.path.as_ref().unwrap_or(&check.path))
            .interval(self.interval.unwrap_or(check.interval))
            .timeout(self.timeout.unwrap_or(check.timeout))
            .unhealthy_after(or(self.unhealthy_after, check.unhealthy_after))
            .healthy_after(or(self.healthy_after, check.healthy_after))
    }
}

fn or(value: Option<NonZeroU32>, default: u32) -> u32 {
    value.map_or(default, NonZeroU32::get)
}

/// The key `health` of a backend: `false`, or a table with keys of `[health]`.
pub(super) enum BackendHealth {
    Unchecked,
    Checked(Health),
}

impl BackendHealth {
    /// The check of this backend: its own keys, then those of `[health]`, then the defaults. `None` if
    /// `health = false`.
    pub(super) fn check(&self, general: &Health) -> Option<HealthCheck> {
        match self {
            Self::Unchecked => None,
            Self::Checked(own) => Some(own.apply_to(general.apply_to(HealthCheck::default()))),
        }
    }
}

impl Default for BackendHealth {
    fn default() -> Self {
        Self::Checked(Health::default())
    }
}

impl<'de> Deserialize<'de> for BackendHealth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BackendHealthVisitor)
    }
}

/// Written by hand, because the error of an untagged enum does not name the invalid key.
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
        Health::deserialize(MapAccessDeserializer::new(map)).map(BackendHealth::Checked)
    }
}

pub(super) fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let path = String::deserialize(deserializer)?;
    if path.starts_with('/') && path.parse::<PathAndQuery>().is_ok() {
        Ok(Some(path))
    } else {
        Err(D::Error::custom(format_args!(
            "{path:?} must begin with / and be a valid URL path"
        )))
    }
}
