//! The key `paths` of `[server]`: the paths whose requests go to backends.

use serde::de::{Deserialize, Deserializer, Error};

use crate::paths::{UPSTREAM, has_plain_segments, is_at_or_below, is_known};

/// The paths whose requests go to backends.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum Paths {
    /// The paths of the known APIs.
    #[default]
    Apis,
    /// The paths at or below these ones.
    Below(Vec<String>),
    All,
}

impl Paths {
    /// Returns `true` if requests to `path` go to backends although their bodies do not name a model.
    pub(crate) fn allows_unread(&self, path: &str) -> bool {
        match self {
            Self::Apis => is_at_or_below(path, "/v1") || path.starts_with(UPSTREAM),
            Self::Below(_) | Self::All => self.allows(path),
        }
    }

    /// Returns `true` if requests to `path` go to backends by the model that their bodies name.
    pub(crate) fn allows(&self, path: &str) -> bool {
        match self {
            Self::Apis => is_known(path),
            Self::Below(prefixes) => prefixes.iter().any(|prefix| is_at_or_below(path, prefix)),
            Self::All => true,
        }
    }
}

impl<'de> Deserialize<'de> for Paths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "\"apis\", \"all\", or an array of prefixes such as [\"/v1\"]";
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) if text == "apis" => Ok(Self::Apis),
            toml::Value::String(text) if text == "all" => Ok(Self::All),
            toml::Value::Array(prefixes) if !prefixes.is_empty() => {
                let prefixes = prefixes.into_iter().map(|prefix| match prefix {
                    toml::Value::String(prefix) => checked(prefix),
                    _ => Err(format!("`paths` must be {expected}")),
                });
                let prefixes = prefixes.collect::<Result<_, _>>();
                prefixes.map(Self::Below).map_err(D::Error::custom)
            }
            _ => Err(D::Error::custom(format!("`paths` must be {expected}"))),
        }
    }
}

/// Returns `prefix` if paths may begin with it.
pub(super) fn checked(prefix: String) -> Result<String, String> {
    match has_plain_segments(&prefix, false) {
        true => Ok(prefix),
        false => Err(format!(
            "{prefix:?} is no prefix of paths: it must begin with / and have no empty segment, no `..` and no encoded \
             slash, such as \"/v1/audio\""
        )),
    }
}
