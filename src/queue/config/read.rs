//! The form of a [`QueueConfig`] in a file, and of a [`WaitingRoomConfig`], which may be read alone.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use http::StatusCode;
use serde::de::{Deserialize, Deserializer, Error};

use super::{Concurrency, Hold, Overflow, QueueConfig, Streaming};
use crate::admit::{
    AdaptiveLimit, Discipline, PriorityLevels, ReservedSlots, TargetWait, TenantLimits,
    WaitingRoomConfig,
};
use crate::http::RetryAfter;
use crate::short_number::Short;

/// Defines a table that has the given keys beside the keys of a waiting room. serde's `flatten` would neither refuse an
/// unknown key nor report the line of a value.
macro_rules! table {
    (#[$attr:meta] $name:ident { $($(#[$key_attr:meta])* $key:ident: $type:ty,)* }) => {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[$attr]
        pub(super) struct $name {
            $($(#[$key_attr])* $key: $type,)*
            max_size: Option<usize>,
            max_size_per_tenant: Option<usize>,
            max_concurrent_per_tenant: Option<usize>,
            #[serde(default, deserialize_with = "max_wait")]
            max_wait_seconds: Option<Option<Duration>>,
            #[serde(default)]
            discipline: Discipline,
            priorities: Option<Vec<String>>,
            default_priority: Option<String>,
            #[serde(default, deserialize_with = "promote_after")]
            promote_after_seconds: Option<Duration>,
            displace: Option<bool>,
            #[serde(default, deserialize_with = "target_wait")]
            target_wait: TargetWait,
            /// A key that is gone. It is known here only for the sake of its error.
            #[serde(default, deserialize_with = "lifo_is_gone")]
            #[allow(dead_code, reason = "no value is accepted")]
            lifo_when_standing: (),
            #[serde(default, deserialize_with = "reserve")]
            reserve: HashMap<String, ReservedSlots>,
            #[serde(default)]
            level_weights: HashMap<String, u32>,
            #[serde(default)]
            tenant_weights: HashMap<String, u32>,
            #[serde(default)]
            tenant_limits: HashMap<String, TenantLimits>,
        }

        impl $name {
            /// Takes the waiting room out of the table.
            fn room<E: Error>(&mut self) -> Result<WaitingRoomConfig, E> {
                let default = WaitingRoomConfig::default();
                let weights = std::mem::take(&mut self.tenant_weights).into_iter();
                let limits = std::mem::take(&mut self.tenant_limits).into_iter();
                Ok(WaitingRoomConfig {
                    max_size: self.max_size.unwrap_or(default.max_size),
                    max_size_per_tenant: self.max_size_per_tenant.filter(|n| *n > 0),
                    max_concurrent_per_tenant: self.max_concurrent_per_tenant.filter(|n| *n > 0),
                    max_wait: self.max_wait_seconds.unwrap_or(default.max_wait),
                    discipline: self.discipline,
                    levels: levels(self.priorities.take(), self.default_priority.take())?,
                    promote_after: self.promote_after_seconds,
                    displace: self.displace.unwrap_or(default.displace),
                    target_wait: self.target_wait,
                    reserve: std::mem::take(&mut self.reserve),
                    level_weights: std::mem::take(&mut self.level_weights),
                    weights: weights.map(|(name, n)| (name.into(), n)).collect(),
                    tenant_limits: limits.map(|(name, own)| (name.into(), own)).collect(),
                    sheds: false,
                })
            }
        }
    };
}

table! {
    #[serde(expecting = "the configuration of a waiting room")]
    RoomTable {}
}

table! {
    #[serde(expecting = "the configuration of a queue")]
    QueueTable {
        #[serde(default)]
        concurrency: Concurrency,
        limit: Option<AdaptiveLimit>,
        enabled: Option<bool>,
        #[serde(default)]
        overflow: Overflow,
        priority_header: Option<String>,
        #[serde(default, deserialize_with = "present")]
        tenant_header: Option<Option<String>>,
        #[serde(default)]
        streaming: Streaming,
        #[serde(default)]
        hold: Hold,
        #[serde(default, deserialize_with = "max_hold")]
        max_hold_seconds: Option<Duration>,
        #[serde(default, deserialize_with = "idle_timeout")]
        idle_timeout_seconds: Option<Duration>,
        server_timing: Option<bool>,
        #[serde(default)]
        retry_after: RetryAfter,
        #[serde(default, deserialize_with = "overload_status")]
        overload_status: Option<StatusCode>,
    }
}

impl<'de> Deserialize<'de> for WaitingRoomConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        RoomTable::deserialize(from)?.room()
    }
}

impl<'de> Deserialize<'de> for QueueConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let default = Self::default();
        let mut table = QueueTable::deserialize(from)?;
        let room = table.room()?;
        let concurrency = match (table.concurrency, table.limit) {
            (Concurrency::Adaptive(_), Some(limit)) => Concurrency::Adaptive(limit),
            (_, Some(_)) => {
                return Err(D::Error::custom(
                    "`limit` is there without `concurrency = \"auto\"`, which needs it",
                ));
            }
            (concurrency, None) => concurrency,
        };
        let tenant_header = table.tenant_header.unwrap_or(default.tenant_header);
        Ok(Self {
            concurrency,
            enabled: table.enabled.unwrap_or(default.enabled),
            room,
            overflow: table.overflow,
            priority_header: table.priority_header.unwrap_or(default.priority_header),
            tenant_header: tenant_header.filter(|name| name != "none"),
            read_headers: default.read_headers,
            streaming: table.streaming,
            hold: table.hold,
            max_hold: table.max_hold_seconds,
            idle_timeout: table.idle_timeout_seconds,
            server_timing: table.server_timing.unwrap_or(default.server_timing),
            status_stream: default.status_stream,
            retry_after: table.retry_after,
            overload_status: table.overload_status.unwrap_or(default.overload_status),
        })
    }
}

/// Returns the levels of two keys, which belong together because the default has to be one of the priorities.
fn levels<E: Error>(
    names: Option<Vec<String>>,
    default: Option<String>,
) -> Result<PriorityLevels, E> {
    let usual = PriorityLevels::default();
    let names = names.unwrap_or_else(|| usual.names().map(str::to_owned).collect());
    let default = default.as_deref();
    let default = default.unwrap_or_else(|| usual.name(usual.default_priority()));
    PriorityLevels::new(names, default).map_err(E::custom)
}

/// Reads a value that may be `null`, which differs from an absent key.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A value that is a number or a word, or the `null` of some formats.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "the value must be a number or a word")]
enum Scalar {
    Switch(bool),
    Whole(u64),
    Number(f64),
    Word(String),
    Null(()),
}

impl Scalar {
    /// Returns a duration that is given as a number of seconds, which may have a fraction.
    fn seconds(&self) -> Option<Duration> {
        match *self {
            Self::Whole(seconds) => Some(Duration::from_secs(seconds)),
            Self::Number(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            _ => None,
        }
    }

    fn is_none(&self) -> bool {
        matches!(self, Self::Null(())) || matches!(self, Self::Word(word) if word == "none")
    }

    /// Returns `meaning`, or an error that names the key, this value and the allowed values.
    fn or_refuse<T, E: Error>(
        &self,
        meaning: Option<T>,
        key: impl fmt::Display,
        allowed: impl fmt::Display,
    ) -> Result<T, E> {
        meaning.ok_or_else(|| E::custom(format_args!("`{key}` is {self}: it must be {allowed}")))
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(value) => write!(f, "{value}"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{}", Short(*number)),
            Self::Word(word) => write!(f, "{word:?}"),
            Self::Null(()) => f.write_str("null"),
        }
    }
}

const SECONDS: &str = "a number of seconds from 0 to 18446744073709551615";

fn seconds_or_none<'de, D: Deserializer<'de>>(
    key: &str,
    from: D,
) -> Result<Option<Duration>, D::Error> {
    let value = Scalar::deserialize(from)?;
    let meaning = match value.is_none() {
        true => Some(None),
        false => value.seconds().map(Some),
    };
    value.or_refuse(meaning, key, format_args!("{SECONDS}, or \"none\""))
}

fn max_wait<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<Duration>>, D::Error> {
    seconds_or_none("max_wait_seconds", from).map(Some)
}

fn promote_after<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    seconds_or_none("promote_after_seconds", from)
}

fn max_hold<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    seconds_or_none("max_hold_seconds", from)
}

fn idle_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    seconds_or_none("idle_timeout_seconds", from)
}

fn target_wait<'de, D: Deserializer<'de>>(from: D) -> Result<TargetWait, D::Error> {
    let value = Scalar::deserialize(from)?;
    let meaning = match &value {
        Scalar::Word(word) if word == "auto" => Some(TargetWait::Auto),
        value if value.is_none() => Some(TargetWait::Off),
        value => value.seconds().map(TargetWait::After),
    };
    value.or_refuse(
        meaning,
        "target_wait",
        format_args!("{SECONDS}, \"auto\" or \"none\""),
    )
}

fn overload_status<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StatusCode>, D::Error> {
    let value = Scalar::deserialize(from)?;
    let meaning = match &value {
        Scalar::Whole(503) => Some(StatusCode::SERVICE_UNAVAILABLE),
        Scalar::Whole(429) => Some(StatusCode::TOO_MANY_REQUESTS),
        _ => None,
    };
    value
        .or_refuse(meaning, "overload_status", "503 or 429")
        .map(Some)
}

impl<'de> Deserialize<'de> for Concurrency {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Scalar::deserialize(from)?;
        let meaning = match &value {
            Scalar::Whole(limit) => usize::try_from(*limit).ok().map(Self::Limit),
            Scalar::Word(word) if word == "inner" => Some(Self::Inner),
            Scalar::Word(word) if word == "auto" => Some(Self::Adaptive(AdaptiveLimit::default())),
            _ => None,
        };
        let allowed = "an integer of at least 0, or \"inner\", or \"auto\"";
        value.or_refuse(meaning, "concurrency", allowed)
    }
}

/// Refuses a key that is gone.
fn lifo_is_gone<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
    serde::de::IgnoredAny::deserialize(from)?;
    Err(D::Error::custom(
        "`lifo_when_standing` is gone, because `target_wait` keeps queues short: remove the key",
    ))
}

/// Reads the slots that are reserved for levels: `{ high = 1, low = "10%" }`.
fn reserve<'de, D: Deserializer<'de>>(from: D) -> Result<HashMap<String, ReservedSlots>, D::Error> {
    let mut levels = HashMap::new();
    // In order, so that the same one of several mistakes is reported each time.
    for (name, value) in BTreeMap::<String, Scalar>::deserialize(from)? {
        let slots = match &value {
            // A level may be called `lend`, too, so the type of the value decides.
            Scalar::Switch(_) if name == "lend" => {
                return Err(D::Error::custom(LEND_IS_GONE));
            }
            Scalar::Whole(slots) => u32::try_from(*slots).ok().map(ReservedSlots::Slots),
            Scalar::Word(share) => share
                .strip_suffix('%')
                .and_then(|percent| percent.trim().parse::<f64>().ok())
                .map(|percent| ReservedSlots::Share(percent / 100.0)),
            _ => None,
        };
        let slots = value.or_refuse(
            slots,
            format_args!("reserve.{name}"),
            "a number of slots, or a share such as \"10%\"",
        )?;
        levels.insert(name, slots);
    }
    Ok(levels)
}

const LEND_IS_GONE: &str = "`reserve.lend` is gone, because reserved slots are never lent: remove the key, or replace \
    `reserve` by `level_weights`, with which a level gets what the others leave idle";

#[cfg(all(test, not(loom)))]
mod tests;
