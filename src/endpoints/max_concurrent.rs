//! Reads an endpoint from a file, where `max_concurrent` and `limit` together determine its number of slots.

use std::fmt;

use http::Uri;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

use super::{Endpoint, Model};
use crate::admit::AdaptiveLimit;

/// The key `max_concurrent` of an endpoint in a file, which is a whole number or `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaxConcurrent {
    /// A fixed number of slots.
    Slots(u32),
    /// A number of slots that [measurements](Endpoint::limit) find.
    Auto,
}

impl MaxConcurrent {
    /// Sets the slots of `endpoint` by this key and by the table `limit`, as far as they are present.
    ///
    /// # Errors
    ///
    /// Returns an error if there is a `limit` while the key is not [`Auto`](Self::Auto). The message says how to mend
    /// it.
    pub fn apply_to(
        key: Option<Self>,
        limit: Option<AdaptiveLimit>,
        endpoint: Endpoint,
    ) -> Result<Endpoint, &'static str> {
        Ok(match (key, limit) {
            (Some(Self::Auto), limit) => endpoint.limit(limit.unwrap_or_default()),
            (_, Some(_)) => {
                return Err("`limit` is there without `max_concurrent = \"auto\"`, which needs it");
            }
            (Some(Self::Slots(slots)), None) => endpoint.max_concurrent(slots),
            (None, None) => endpoint,
        })
    }
}

impl<'de> Deserialize<'de> for MaxConcurrent {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(SlotsOrAuto)
    }
}

struct SlotsOrAuto;

impl Visitor<'_> for SlotsOrAuto {
    type Value = MaxConcurrent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of at most 4294967295, or \"auto\"")
    }

    fn visit_u64<E: Error>(self, slots: u64) -> Result<MaxConcurrent, E> {
        let key = u32::try_from(slots).map(MaxConcurrent::Slots);
        key.map_err(|_| E::invalid_value(Unexpected::Unsigned(slots), &self))
    }

    fn visit_i64<E: Error>(self, slots: i64) -> Result<MaxConcurrent, E> {
        match u64::try_from(slots) {
            Ok(slots) => self.visit_u64(slots),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(slots), &self)),
        }
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<MaxConcurrent, E> {
        match word {
            "auto" => Ok(MaxConcurrent::Auto),
            _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
        }
    }
}

/// The format of an endpoint in a file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndpointFile {
    name: String,
    #[serde(deserialize_with = "uri")]
    url: Uri,
    priority: Option<u32>,
    max_concurrent: Option<MaxConcurrent>,
    limit: Option<AdaptiveLimit>,
    #[serde(default)]
    http2: bool,
    #[serde(default)]
    models: Vec<Model>,
}

impl TryFrom<EndpointFile> for Endpoint {
    type Error = &'static str;

    fn try_from(file: EndpointFile) -> Result<Self, &'static str> {
        let mut endpoint = Self::new(file.name, file.url);
        endpoint.priority = file.priority.unwrap_or(endpoint.priority);
        endpoint.http2 = file.http2;
        endpoint.models = file.models;
        MaxConcurrent::apply_to(file.max_concurrent, file.limit, endpoint)
    }
}

/// Reads a URL, and rejects a fragment, which the parser of `Uri` drops silently.
fn uri<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uri, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.contains('#') {
        return Err(D::Error::custom("the URL must not contain a fragment"));
    }
    text.parse()
        .map_err(|error| D::Error::custom(format_args!("{text:?} is not a URL: {error}")))
}
