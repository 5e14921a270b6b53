//! Durations in seconds, fractions allowed.

use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

pub(super) fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(D::Error::custom(format_args!(
            "{seconds} must be a number of seconds above 0"
        ))),
    }
}

/// Reads a duration, where 0 stands for none.
pub(super) fn above_0<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) => Ok(Some(duration).filter(|duration| !duration.is_zero())),
        Err(_) => Err(D::Error::custom(format_args!(
            "{seconds} must be a number of seconds, or 0"
        ))),
    }
}

pub(super) fn some_positive<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    positive(deserializer).map(Some)
}
