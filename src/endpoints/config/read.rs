//! Deserialises the routing configuration. Values are checked while they are read, so that an error names its key.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

use crate::short_number::Short;

use super::{StrategyChoice, Weights, aliases, check_weights, empty_fallback};

impl<'de> Deserialize<'de> for StrategyChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Ok(Self::named(&name))
    }
}

pub(super) fn weights<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Weights, D::Error> {
    let read = Weights::deserialize(deserializer)?;
    check_weights(read).map_err(D::Error::custom)?;
    Ok(read)
}

pub(super) fn aliases<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let read = BTreeMap::deserialize(deserializer)?;
    aliases::validate(&read).map_err(D::Error::custom)?;
    Ok(read)
}

pub(super) fn fallbacks<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Vec<String>>, D::Error> {
    let read = BTreeMap::<String, Vec<String>>::deserialize(deserializer)?;
    match empty_fallback(&read) {
        Some((model, chain)) => Err(D::Error::custom(format_args!(
            "the fallbacks {model:?} = {chain:?} have an empty name"
        ))),
        None => Ok(read),
    }
}

pub(super) fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let share = f64::deserialize(deserializer)?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(D::Error::custom(format_args!(
            "{} must be between 0 and 1",
            Short(share)
        )))
    }
}

pub(super) fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
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
