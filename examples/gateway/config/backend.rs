//! `[[backends]]`

use std::num::NonZeroU32;

use http::Uri;
use serde::de::{Deserialize, Deserializer, Error};
use tower_triage::route::{Endpoint, Model};

use super::health::{BackendHealth, Health};

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Backend {
    name: String,
    #[serde(deserialize_with = "url")]
    url: Uri,
    priority: Option<u32>,
    max_concurrent: Option<NonZeroU32>,
    #[serde(default)]
    health: BackendHealth,
    #[serde(default)]
    models: Vec<Model>,
}

impl Backend {
    pub(super) fn endpoint(&self) -> Endpoint {
        let mut endpoint = Endpoint::new(&self.name, self.url.clone());
        endpoint.priority = self.priority.unwrap_or(endpoint.priority);
        endpoint.max_concurrent = self
            .max_concurrent
            .map_or(endpoint.max_concurrent, NonZeroU32::get);
        endpoint.models.clone_from(&self.models);
        endpoint
    }

    /// How its health is checked, if it is.
    pub(super) fn health(&self, defaults: &Health) -> Option<Health> {
        self.health.over(defaults)
    }

    pub(super) fn announce(&self, defaults: &Health) {
        let endpoint = self.name.as_str();
        if self.models.is_empty() {
            tracing::warn!(endpoint, "serves no models: nothing will be sent there");
        }
        match self.health(defaults) {
            Some(health) => tracing::debug!(endpoint, ?health, "health"),
            None => tracing::debug!(endpoint, "health is not checked"),
        }
    }
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uri, D::Error> {
    let text = String::deserialize(deserializer)?;
    let url: Uri = text
        .parse()
        .map_err(|error| D::Error::custom(format_args!("`url` {text:?}: {error}")))?;
    match url.scheme_str() {
        Some("http") => Ok(url),
        Some("https") => Err(D::Error::custom(
            "`url`: https:// is not supported yet: use http://",
        )),
        _ => Err(D::Error::custom(
            "`url` must begin with http:// or https://",
        )),
    }
}
