//! Sections of the format that this gateway does not support yet. They are errors, because an ignored section would
//! look as if it worked.

use serde::de::{Deserialize, Deserializer, Error};

#[derive(Debug, Clone, Default)]
pub(super) struct Unsupported;

impl<'de> Deserialize<'de> for Unsupported {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(D::Error::custom(
            "this section is not supported yet: remove it",
        ))
    }
}
