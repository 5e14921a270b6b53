//! The `[[backends]]` section.

use std::num::NonZeroU32;

use http::Uri;
use serde::de::{Deserialize, Deserializer, Error};
use tower_triage::endpoints::{Endpoint, Model};

use super::Environment;
use super::headers::{Headers, InvalidHeader};
use super::health::{BackendHealth, Health};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Backend {
    name: String,
    #[serde(deserialize_with = "url")]
    url: Uri,
    priority: Option<u32>,
    max_concurrent: Option<NonZeroU32>,
    #[serde(default)]
    headers: Headers,
    #[serde(default)]
    health: BackendHealth,
    #[serde(default)]
    models: Vec<Model>,
}

impl Backend {
    /// The endpoint of this backend. `general` is `[health]`: it applies where the backend sets no key of its own.
    pub(super) fn endpoint(
        &self,
        general: &Health,
        environment: Environment,
    ) -> Result<Endpoint, InvalidHeader> {
        let mut endpoint = Endpoint::new(&self.name, self.url.clone());
        endpoint.priority = self.priority.unwrap_or(endpoint.priority);
        endpoint.max_concurrent = self
            .max_concurrent
            .map_or(endpoint.max_concurrent, NonZeroU32::get);
        endpoint.models.clone_from(&self.models);
        endpoint.health = self.health.check(general);
        self.headers.apply_to(endpoint, environment)
    }
}

/// Reads an `http` or `https` URL. Errors do not show its text, which may contain a password.
fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uri, D::Error> {
    let text = String::deserialize(deserializer)?;
    let url: Uri = text
        .parse()
        .map_err(|error| D::Error::custom(format_args!("the URL is invalid ({error})")))?;
    match url.scheme_str() {
        Some("http" | "https") => Ok(url),
        _ => Err(D::Error::custom(
            "the URL must begin with http:// or https://",
        )),
    }
}
