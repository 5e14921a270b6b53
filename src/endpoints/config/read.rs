//! Deserialises the routing configuration. Values are checked while they are read, so that an error names its key.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

use super::{Alias, InvalidRouting, Weights};
use crate::short_number::Short;

/// Reads a value and checks it.
fn checked<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    check: impl FnOnce(&T) -> Result<(), InvalidRouting>,
) -> Result<T, D::Error> {
    let value = T::deserialize(deserializer)?;
    check(&value).map_err(D::Error::custom)?;
    Ok(value)
}

pub(super) fn weights<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Weights, D::Error> {
    checked(deserializer, super::check_weights)
}

pub(super) fn aliases<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Alias>, D::Error> {
    checked(deserializer, super::check_aliases)
}

pub(super) fn fallbacks<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    checked(deserializer, super::check_fallbacks)
}

pub(super) fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    checked(deserializer, super::check_retry_share)
}

pub(super) fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    // Read as a wide number, so that a negative one has the same answer as one that is too large.
    let percent = i64::deserialize(deserializer)?;
    match u32::try_from(percent) {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err(D::Error::custom(format_args!(
            "{percent} must be a whole number between 0 and 100"
        ))),
    }
}

pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(D::Error::custom(format_args!(
            "{} must be a number of seconds above 0",
            Short(seconds)
        ))),
    }
}
