//! Durations in a configuration file.

use std::fmt;
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, Error, Unexpected, Visitor};

use crate::short_number::Short;

/// A reader of a duration in seconds, which may have a fraction. `"none"` and the `null` of some formats are read as
/// `None`.
///
/// Error messages contain the field's name, which is stored here.
pub(super) struct Seconds(pub(super) &'static str);

impl Seconds {
    fn refusal<E: Error>(&self, value: impl fmt::Display) -> E {
        E::custom(format_args!(
            "`{}` is {value}: it must be a number of seconds from 0 to {}, or \"none\"",
            self.0,
            u64::MAX
        ))
    }
}

impl<'de> DeserializeSeed<'de> for Seconds {
    type Value = Option<Duration>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Duration>, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for Seconds {
    type Value = Option<Duration>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` to be a number of seconds, or \"none\"", self.0)
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Option<Duration>, E> {
        Ok(Some(Duration::from_secs(seconds)))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Option<Duration>, E> {
        match u64::try_from(seconds) {
            Ok(seconds) => self.visit_u64(seconds),
            Err(_) => Err(self.refusal(seconds)),
        }
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Option<Duration>, E> {
        let duration = Duration::try_from_secs_f64(seconds);
        duration.map(Some).map_err(|_| self.refusal(Short(seconds)))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Option<Duration>, E> {
        match word {
            "none" => Ok(None),
            _ => Err(self.refusal(Unexpected::Str(word))),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<Option<Duration>, E> {
        Ok(None)
    }

    fn visit_none<E: Error>(self) -> Result<Option<Duration>, E> {
        Ok(None)
    }
}
