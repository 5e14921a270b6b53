//! The `[[backends]]` section.

use http::Uri;
use serde::de::{Deserialize, Deserializer, Error};
use tower_triage::admit::AdaptiveLimit;
use tower_triage::endpoints::{Endpoint, InvalidRegistry, MaxConcurrent, Model};

use super::Environment;
use super::error::Problem;
use super::headers::Headers;
use super::health::{BackendHealth, Health};
use super::load::Load;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Backend {
    name: String,
    #[serde(deserialize_with = "url")]
    url: Uri,
    priority: Option<u32>,
    max_concurrent: Option<MaxConcurrent>,
    limit: Option<AdaptiveLimit>,
    load: Option<Load>,
    #[serde(default)]
    http2: bool,
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
    ) -> Result<Endpoint, Problem> {
        let endpoint = Endpoint::new(&self.name, self.url.clone());
        let mut endpoint = MaxConcurrent::apply_to(self.max_concurrent, self.limit, endpoint)
            .map_err(|problem| Problem::Limit(self.name.clone(), problem))?;
        if self.load.is_some() && endpoint.limit.is_none() {
            let problem = "`load` is there without `max_concurrent = \"auto\"`, which needs it";
            return Err(Problem::Limit(self.name.clone(), problem));
        }
        endpoint.priority = self.priority.unwrap_or(endpoint.priority);
        endpoint.http2 = self.http2;
        endpoint.models.clone_from(&self.models);
        endpoint.health = self.health.check(general);
        endpoint.load = self.load.as_ref().map(Load::metrics);
        let endpoint = self.headers.apply_to(endpoint, environment);
        endpoint.map_err(Problem::Header)
    }
}

/// Returns which of the backends, of these names, an error is about.
pub(super) fn index(error: &InvalidRegistry, names: &[String]) -> Option<usize> {
    use InvalidRegistry as E;
    match error {
        E::BadName { index } => Some(*index),
        E::DuplicateName { endpoint } => names.iter().rposition(|name| name == endpoint),
        E::BadLimit { endpoint, .. } | E::BadEndpoint { endpoint, .. } => {
            names.iter().position(|name| name == endpoint)
        }
        _ => None,
    }
}

/// Reads an `http` or `https` URL. Errors do not show its text, which may contain a password.
fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uri, D::Error> {
    let text = String::deserialize(deserializer)?;
    let url: Uri = text
        .parse()
        .map_err(|error| D::Error::custom(format_args!("the URL is invalid ({error})")))?;
    match url.scheme_str() {
        Some("http" | "https") if text.contains('#') => {
            Err(D::Error::custom("the URL must not contain a fragment"))
        }
        Some("http" | "https") => Ok(url),
        _ => Err(D::Error::custom(
            "the URL must begin with http:// or https://",
        )),
    }
}
