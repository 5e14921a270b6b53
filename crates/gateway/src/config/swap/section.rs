//! Reads the `[swap]` section: the library's configuration, and keys of the gateway's own beside its keys.
//!
//! Serde's `flatten` would lose the line of an unknown key.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use tower_triage::swap::SwapConfig;

use super::macros::Macros;

/// The section, checked.
pub(in crate::config) struct SwapSection {
    pub(in crate::config) config: SwapConfig,
    pub(in crate::config) own: OwnKeys,
}

/// The values of the gateway's own keys.
#[derive(Default)]
pub(in crate::config) struct OwnKeys {
    pub(in crate::config) clients_may_unload: bool,
    pub(in crate::config) macros: Macros,
}

/// A key of the gateway's own.
enum OwnKey {
    ClientsMayUnload,
    Macros,
}

impl<'de> Deserialize<'de> for SwapSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Section)
    }
}

struct Section;

impl<'de> Visitor<'de> for Section {
    type Value = SwapSection;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SwapSection, A::Error> {
        let mut own = OwnKeys::default();
        let others = OtherKeys { map, own: &mut own };
        let config = SwapConfig::deserialize(MapAccessDeserializer::new(others))?;
        config.validate().map_err(A::Error::custom)?;
        Ok(SwapSection { config, own })
    }
}

/// The entries of a table without the gateway's own.
struct OtherKeys<'a, A> {
    map: A,
    own: &'a mut OwnKeys,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for OtherKeys<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K>(&mut self, mut seed: K) -> Result<Option<K::Value>, A::Error>
    where
        K: DeserializeSeed<'de>,
    {
        loop {
            match self.map.next_key_seed(KeySeed(seed))? {
                None => return Ok(None),
                Some(Key::Other(key)) => return Ok(Some(key)),
                Some(Key::Own(key, unused)) => {
                    match key {
                        OwnKey::ClientsMayUnload => {
                            self.own.clients_may_unload = self.map.next_value()?;
                        }
                        OwnKey::Macros => self.own.macros = self.map.next_value()?,
                    }
                    seed = unused;
                }
            }
        }
    }

    fn next_value_seed<V>(&mut self, seed: V) -> Result<V::Value, A::Error>
    where
        V: DeserializeSeed<'de>,
    {
        self.map.next_value_seed(seed)
    }
}

/// Reads a key with a seed, unless the key is the gateway's own: then it returns the seed.
struct KeySeed<K>(K);

enum Key<K, V> {
    Own(OwnKey, K),
    Other(V),
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<K> {
    type Value = Key<K, K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        match &*String::deserialize(key)? {
            "clients_may_unload" => Ok(Key::Own(OwnKey::ClientsMayUnload, self.0)),
            "macros" => Ok(Key::Own(OwnKey::Macros, self.0)),
            other => self
                .0
                .deserialize(StrDeserializer::new(other))
                .map(Key::Other),
        }
    }
}
