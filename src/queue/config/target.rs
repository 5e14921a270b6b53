//! The target wait in a configuration file.

use std::fmt;
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, Error, Unexpected, Visitor};

use crate::admit::TargetWait;
use crate::short_number::Short;

/// A reader of a target wait: a number of seconds, which may have a fraction, `"auto"` or `"none"`.
///
/// Error messages contain the field's name, which is stored here.
pub(super) struct Target(pub(super) &'static str);

impl Target {
    fn refusal<E: Error>(&self, value: impl fmt::Display) -> E {
        E::custom(format_args!(
            "`{}` is {value}: it must be a number of seconds from 0 to {}, \"auto\" or \"none\"",
            self.0,
            u64::MAX
        ))
    }
}

impl<'de> DeserializeSeed<'de> for Target {
    type Value = TargetWait;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<TargetWait, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for Target {
    type Value = TargetWait;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` to be a number of seconds, \"auto\" or \"none\"",
            self.0
        )
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<TargetWait, E> {
        Ok(Duration::from_secs(seconds).into())
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<TargetWait, E> {
        match u64::try_from(seconds) {
            Ok(seconds) => self.visit_u64(seconds),
            Err(_) => Err(self.refusal(seconds)),
        }
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<TargetWait, E> {
        let duration = Duration::try_from_secs_f64(seconds);
        duration
            .map(Into::into)
            .map_err(|_| self.refusal(Short(seconds)))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<TargetWait, E> {
        match word {
            "auto" => Ok(TargetWait::Auto),
            "none" => Ok(TargetWait::Off),
            _ => Err(self.refusal(Unexpected::Str(word))),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<TargetWait, E> {
        Ok(TargetWait::Off)
    }

    fn visit_none<E: Error>(self) -> Result<TargetWait, E> {
        Ok(TargetWait::Off)
    }
}
