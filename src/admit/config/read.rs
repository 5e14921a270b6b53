//! Reading a waiting room's configuration from a file.
//!
//! The keys are read by hand, not by serde's derive, because other configurations have the same keys beside their
//! own, and `flatten` can neither refuse an unknown key nor say in which line a value is.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Unexpected, Visitor,
};

use super::WaitingRoomConfig;
use crate::admit::PriorityLevels;

/// A configuration that is read one key at a time.
pub(crate) trait ReadKeys: Sized {
    /// What is read, as an error message calls it.
    const WHAT: &'static str;
    /// The keys.
    const KEYS: &'static [&'static str];

    /// Reads the value of `key`, which is one of [`KEYS`](Self::KEYS).
    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Reads a map. An unknown key and a repeated one are errors.
pub(crate) fn read_map<'de, K: ReadKeys, D: Deserializer<'de>>(
    keys: K,
    from: D,
) -> Result<K, D::Error> {
    from.deserialize_map(Keys(keys))
}

struct Keys<K>(K);

impl<'de, K: ReadKeys> Visitor<'de> for Keys<K> {
    type Value = K;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(K::WHAT)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<K, A::Error> {
        let Self(mut keys) = self;
        let mut seen = Vec::new();
        while let Some(key) = map.next_key_seed(OneOf(K::KEYS))? {
            if seen.contains(&key) {
                return Err(A::Error::duplicate_field(key));
            }
            seen.push(key);
            keys.read(key, &mut map)?;
        }
        Ok(keys)
    }
}

/// One of these names.
struct OneOf(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for OneOf {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<&'static str, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for OneOf {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<&'static str, E> {
        let known = self.0.iter().find(|key| **key == name);
        known.copied().ok_or_else(|| E::unknown_field(name, self.0))
    }
}

/// A [`WaitingRoomConfig`] that is being read.
#[derive(Default)]
pub(crate) struct RoomReader {
    room: WaitingRoomConfig,
    priorities: Option<Vec<String>>,
    default_priority: Option<String>,
}

impl ReadKeys for RoomReader {
    const WHAT: &'static str = "the configuration of a waiting room";
    const KEYS: &'static [&'static str] = &[
        "max_size",
        "max_size_per_tenant",
        "max_wait_seconds",
        "discipline",
        "priorities",
        "default_priority",
        "promote_after_seconds",
        "displace",
        "tenant_weights",
    ];

    fn read<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let room = &mut self.room;
        match key {
            "max_size" => room.max_size = map.next_value()?,
            "max_size_per_tenant" => {
                room.max_size_per_tenant = Some(map.next_value()?).filter(|n| *n > 0);
            }
            "max_wait_seconds" => {
                room.max_wait = map.next_value_seed(Seconds("max_wait_seconds"))?
            }
            "discipline" => room.discipline = map.next_value()?,
            "priorities" => self.priorities = Some(map.next_value()?),
            "default_priority" => self.default_priority = Some(map.next_value()?),
            "promote_after_seconds" => {
                room.promote_after = map.next_value_seed(Seconds("promote_after_seconds"))?;
            }
            "displace" => room.displace = map.next_value()?,
            "tenant_weights" => {
                let weights: HashMap<String, u32> = map.next_value()?;
                room.weights = weights
                    .into_iter()
                    .map(|(name, n)| (name.into(), n))
                    .collect();
            }
            _ => unreachable!("`KEYS` has no other key"),
        }
        Ok(())
    }
}

impl RoomReader {
    /// What was read. The names of the levels and the default's are two keys, but make sense only together.
    pub(crate) fn finish<E: Error>(self) -> Result<WaitingRoomConfig, E> {
        let Self {
            mut room,
            priorities,
            default_priority,
        } = self;
        if priorities.is_some() || default_priority.is_some() {
            let old = &room.levels;
            let names = priorities.unwrap_or_else(|| old.names().map(str::to_owned).collect());
            let default =
                default_priority.unwrap_or_else(|| old.name(old.default_priority()).to_owned());
            room.levels = PriorityLevels::new(names, &default).map_err(E::custom)?;
        }
        Ok(room)
    }
}

impl<'de> Deserialize<'de> for WaitingRoomConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read_map(RoomReader::default(), from)?.finish()
    }
}

/// A duration in seconds, whole or with a fraction; `"none"`, or `null` in formats that have it, is `None`.
///
/// The field's name is part of the errors.
pub(crate) struct Seconds(pub(crate) &'static str);

impl Seconds {
    fn number<E: Error>(&self, seconds: f64) -> Result<Option<Duration>, E> {
        let duration = Duration::try_from_secs_f64(seconds);
        duration.map(Some).map_err(|_| self.refusal(seconds))
    }

    fn refusal<E: Error>(&self, value: impl fmt::Display) -> E {
        E::custom(format_args!("`{}` is {value}: {self}", self.0))
    }
}

/// What is allowed.
impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = u64::MAX;
        write!(
            f,
            "it must be a number of seconds from 0 to {most}, or \"none\""
        )
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
        self.number(seconds)
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::admit::Discipline;

    fn read(text: &str) -> Result<WaitingRoomConfig, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    fn refusal(text: &str) -> String {
        read(text).expect_err(text)
    }

    #[test]
    fn every_key_is_read() {
        let room = read(
            r#"
            max_size = 7
            max_size_per_tenant = 3
            max_wait_seconds = 0.3
            discipline = "deadline"
            priorities = ["gold", "silver"]
            default_priority = "silver"
            promote_after_seconds = 10
            displace = true
            tenant_weights = { "team-a" = 3 }
            "#,
        );
        let expected = WaitingRoomConfig::default()
            .max_size(7)
            .max_size_per_tenant(3)
            .max_wait(Duration::from_millis(300))
            .discipline(Discipline::Deadline)
            .levels(PriorityLevels::new(["gold", "silver"], "silver").unwrap())
            .promote_after(Duration::from_secs(10))
            .displace(true)
            .weight("team-a", 3);
        assert_eq!(room, Ok(expected));
        assert_eq!(read(""), Ok(WaitingRoomConfig::default()));
    }

    #[test]
    fn none_is_a_value() {
        let room = read("max_wait_seconds = \"none\"\npromote_after_seconds = \"none\"");
        assert_eq!(room, Ok(WaitingRoomConfig::default().max_wait(None)));
        let room = read("max_size_per_tenant = 0");
        assert_eq!(room, Ok(WaitingRoomConfig::default()));

        let null: WaitingRoomConfig =
            serde_json::from_str(r#"{"max_wait_seconds": null}"#).expect("null is allowed");
        assert_eq!(null.max_wait, None);
    }

    #[test]
    fn seconds_that_are_no_duration_are_refused_by_name() {
        for field in ["max_wait_seconds", "promote_after_seconds"] {
            for bad in ["-1", "-0.5", "nan", "inf", "1e300", "\"never\"", "\"30\""] {
                let error = refusal(&format!("{field} = {bad}"));
                assert!(error.contains(&format!("`{field}` is ")), "{error}");
                assert!(error.contains("number of seconds from 0"), "{error}");
                assert!(error.contains("or \"none\""), "{error}");
            }
            let error = refusal(&format!("{field} = true"));
            assert!(
                error.contains(&format!("expected `{field}` to be")),
                "{error}"
            );
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_known_ones() {
        let error = refusal("displace = true\nmax_sise = 1");
        for words in ["unknown field `max_sise`", "`max_size`", "line 2"] {
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_repeated_key_is_refused() {
        let twice = r#"{"max_size": 1, "max_size": 2}"#;
        let error = serde_json::from_str::<WaitingRoomConfig>(twice).unwrap_err();
        assert!(error.to_string().contains("duplicate field `max_size`"));
    }

    #[test]
    fn levels_that_make_no_sense_are_refused_by_name() {
        for (text, words) in [
            ("priorities = []", "`priorities` is empty"),
            (
                "priorities = [\"a\", \"A\"]",
                "`priorities` names \"A\" twice",
            ),
            ("priorities = [\"a\"]", "`default_priority` is \"normal\""),
            (
                "default_priority = \"vip\"",
                "`default_priority` is \"vip\"",
            ),
        ] {
            let error = refusal(text);
            assert!(error.contains(words), "{error}");
        }
        let high = read("default_priority = \"HIGH\"").map(|room| room.levels.default_priority());
        assert_eq!(high, Ok(crate::admit::Priority::HIGHEST));
    }
}
