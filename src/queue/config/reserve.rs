//! The slots that are reserved for levels, in a configuration file: `{ high = 1, lend = true }`, `{ high = "10%" }`.

use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Unexpected, Visitor};

use crate::admit::ReservedSlots;

/// A reader of the table `reserve`, which returns the reserved slots by level, and `true` if they are lent.
pub(super) struct Reserves;

impl<'de> DeserializeSeed<'de> for Reserves {
    type Value = (HashMap<String, ReservedSlots>, bool);

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reserves {
    type Value = (HashMap<String, ReservedSlots>, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`reserve` to be a table of levels and slots")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut levels, mut lend) = (HashMap::new(), false);
        while let Some(name) = map.next_key::<String>()? {
            match map.next_value_seed(LevelReserve(&name))? {
                // A level may be called `lend`, too, so the type of the value decides.
                Value::Lend(value) if name == "lend" => lend = value,
                Value::Reserve(reserve) => _ = levels.insert(name, reserve),
                Value::Lend(value) => {
                    return Err(LevelReserve(&name).refusal(Unexpected::Bool(value)));
                }
            }
        }
        Ok((levels, lend))
    }
}

/// The value of a key in `reserve`: a number of slots or a share of them, or the setting `lend`.
enum Value {
    Lend(bool),
    Reserve(ReservedSlots),
}

/// A reader of the slots that are reserved for the level of this name.
struct LevelReserve<'a>(&'a str);

impl LevelReserve<'_> {
    fn refusal<E: Error>(&self, value: impl fmt::Display) -> E {
        E::custom(format_args!(
            "`reserve.{}` is {value}: it must be a number of slots, or a share such as \"10%\"",
            self.0
        ))
    }
}

impl<'de> DeserializeSeed<'de> for LevelReserve<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl Visitor<'_> for LevelReserve<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`reserve.{}` to be a number of slots or a share", self.0)
    }

    fn visit_bool<E: Error>(self, lend: bool) -> Result<Value, E> {
        Ok(Value::Lend(lend))
    }

    fn visit_u64<E: Error>(self, slots: u64) -> Result<Value, E> {
        match u32::try_from(slots) {
            Ok(slots) => Ok(Value::Reserve(ReservedSlots::Slots(slots))),
            Err(_) => Err(self.refusal(slots)),
        }
    }

    fn visit_i64<E: Error>(self, slots: i64) -> Result<Value, E> {
        match u64::try_from(slots) {
            Ok(slots) => self.visit_u64(slots),
            Err(_) => Err(self.refusal(slots)),
        }
    }

    fn visit_str<E: Error>(self, share: &str) -> Result<Value, E> {
        let percent = share.strip_suffix('%').map(str::trim);
        match percent.and_then(|percent| percent.parse::<f64>().ok()) {
            Some(percent) => Ok(Value::Reserve(ReservedSlots::Share(percent / 100.0))),
            None => Err(self.refusal(Unexpected::Str(share))),
        }
    }
}
