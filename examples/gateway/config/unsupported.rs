//! Sections that the format has and this gateway does not serve yet. Ignoring one would be a promise.

use serde::de::{Deserialize, Deserializer, Error};

#[derive(Debug, Clone, Default)]
pub(super) struct Unsupported;

impl<'de> Deserialize<'de> for Unsupported {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom(
            "this section is not supported yet: take it out",
        ))
    }
}
