//! Holds the endpoints of a configuration after they were checked, alone and against each other.

use std::collections::HashSet;

use http::header::{CONTENT_LENGTH, HOST, HeaderName};
use http::uri::{Scheme, Uri};

use super::on_demand::release_names;
use super::{Endpoint, EngineMetrics, HealthCheck, Model};
use crate::admit::InvalidAdaptiveLimit;
use crate::http::is_hop_by_hop;

/// A checked list of endpoints, in the order of the configuration.
///
/// ```
/// use tower_triage::endpoints::{Endpoint, InvalidRegistry, Registry};
///
/// let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"));
/// assert_eq!(Registry::new(vec![gpu.clone()])?.endpoints().len(), 1);
///
/// let twice = Registry::new(vec![gpu.clone(), gpu]);
/// assert!(matches!(twice, Err(InvalidRegistry::DuplicateName { .. })));
/// # Ok::<(), InvalidRegistry>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registry {
    endpoints: Vec<Endpoint>,
}

impl Registry {
    /// Checks the endpoints, each by itself and against each other.
    ///
    /// # Errors
    ///
    /// Returns an error if two endpoints have one name, or if a setting of an endpoint is invalid. Names must be printable.
    /// A URL has `http` or `https`, a host, and perhaps a port and a path. An endpoint lists each model
    /// once, and adds no header of a single connection or request.
    pub fn new(endpoints: Vec<Endpoint>) -> Result<Self, InvalidRegistry> {
        let mut names = HashSet::new();
        for (index, endpoint) in endpoints.iter().enumerate() {
            if !is_name(&endpoint.name) {
                return Err(InvalidRegistry::BadName { index });
            }
            if !names.insert(&endpoint.name) {
                let endpoint = endpoint.name.clone();
                return Err(InvalidRegistry::DuplicateName { endpoint });
            }
            let name = || endpoint.name.clone();
            if let Some(Err(problem)) = endpoint.limit.map(|limit| limit.validate()) {
                let endpoint = name();
                return Err(InvalidRegistry::BadLimit { endpoint, problem });
            }
            if let Some(problem) = problem(endpoint) {
                let endpoint = name();
                return Err(InvalidRegistry::BadEndpoint { endpoint, problem });
            }
        }
        Ok(Self { endpoints })
    }

    /// Returns the endpoints that are started on demand, and a registry of all others.
    pub(crate) fn split_on_demand(&self) -> (Vec<Endpoint>, Self) {
        let endpoints = self.endpoints.iter().cloned();
        let (on_demand, endpoints) = endpoints.partition(Endpoint::is_on_demand);
        (on_demand, Self { endpoints })
    }

    /// Adds endpoints that are started on demand. If a name is taken twice, the endpoint of `on_demand` stays, unless its
    /// launcher is gone.
    pub(crate) fn with_on_demand(mut self, mut on_demand: Vec<Endpoint>) -> Self {
        release_names(&mut on_demand, &self.endpoints);
        self.endpoints.retain(|Endpoint { name, .. }| {
            let is_taken = on_demand.iter().any(|other| other.name == *name);
            if is_taken {
                tracing::warn!(
                    name,
                    "endpoint left out: a model that is started on demand has its name"
                );
            }
            !is_taken
        });
        self.endpoints.extend(on_demand);
        self
    }

    /// Returns the endpoints, in the order of the configuration.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Returns the names of all models in the order of their first appearance, each name once.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        let mut seen = HashSet::new();
        let models = self.endpoints.iter().flat_map(|endpoint| &endpoint.models);
        let names = models.map(|model| model.name.as_str());
        names.filter(move |&name| seen.insert(name))
    }
}

/// Returns the first problem of an endpoint by itself.
fn problem(endpoint: &Endpoint) -> Option<String> {
    let reserved = || endpoint.headers.keys().find(|name| is_reserved(name));
    if let Some(problem) = url_problem(&endpoint.url) {
        Some(format!("has a `url` that {problem}"))
    } else if let Some(problem) = endpoint.health.as_ref().and_then(HealthCheck::problem) {
        Some(format!("has a health check with {problem}"))
    } else if let Some(problem) = endpoint.load.as_ref().and_then(EngineMetrics::problem) {
        Some(format!("has a `load` with {problem}"))
    } else if let Some(name) = reserved() {
        Some(format!(
            "has a header `{name}`, which follows from each connection and request: leave it out"
        ))
    } else {
        let mut names = HashSet::new();
        let mut models = endpoint.models.iter();
        models.find_map(|model| model_problem(model, names.insert(&model.name)))
    }
}

fn model_problem(model: &Model, is_first: bool) -> Option<String> {
    let name = &model.name;
    if !is_name(name) {
        Some("has a model whose `name` is empty or has control characters in it".to_owned())
    } else if model.context_length == Some(0) {
        Some(format!(
            "has the model {name:?} with `context_length` = 0: it must be above 0"
        ))
    } else {
        (!is_first).then(|| format!("lists the model {name:?} twice: keep one"))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_control)
}

/// Returns `true` if the header describes a connection or a body, so that it has to be written anew each time.
fn is_reserved(name: &HeaderName) -> bool {
    is_hop_by_hop(name) || [HOST, CONTENT_LENGTH].contains(name)
}

/// Returns the rule for URLs that `url` breaks, if there is one. It leaves the URL out, because it may hold a password.
fn url_problem(url: &Uri) -> Option<&'static str> {
    if url.scheme() != Some(&Scheme::HTTP) && url.scheme() != Some(&Scheme::HTTPS) {
        return Some("must begin with http:// or https://");
    }
    match url.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Some("must not contain a user or a password")
        }
        _ if url.host().is_none_or(str::is_empty) => Some("must name a host"),
        // `Uri` keeps a port that is too large in the authority, but `port()` does not return it.
        Some(authority) if url.port().is_none() && url.host() != Some(authority.as_str()) => {
            Some("must have a port from 0 to 65535 behind its `:`")
        }
        _ if url.query().is_some() => Some("must not contain a query"),
        _ => None,
    }
}

/// The reason why a [`Registry`] is invalid, with the endpoint at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRegistry {
    /// The name of an endpoint is empty, or has control characters in it, so that a header cannot show it.
    #[error("endpoint {} has a `name` that is empty or has control characters in it", index + 1)]
    BadName {
        /// The index of the endpoint in the configuration, counted from 0.
        index: usize,
    },
    /// Two endpoints have the same name, so that logs and metrics could not tell them apart.
    #[error("two endpoints have the `name` {endpoint:?}: give each endpoint a name of its own")]
    DuplicateName {
        /// The name that both endpoints have.
        endpoint: String,
    },
    /// An endpoint has a `limit` with settings that contradict each other.
    #[error("endpoint {endpoint:?}: {problem}")]
    BadLimit {
        /// The name of the endpoint with this limit.
        endpoint: String,
        /// The key that is invalid, with the values that are allowed.
        problem: InvalidAdaptiveLimit,
    },
    /// An endpoint has another setting that is invalid.
    #[error("endpoint {endpoint:?} {problem}")]
    BadEndpoint {
        /// The name of the endpoint.
        endpoint: String,
        /// The setting that is invalid, with the values that are allowed.
        problem: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HOP_BY_HOP;

    fn endpoint(name: &str, url: &'static str) -> Endpoint {
        Endpoint::new(name, http::Uri::from_static(url))
    }

    fn refusal(endpoints: impl Into<Vec<Endpoint>>) -> String {
        Registry::new(endpoints.into()).unwrap_err().to_string()
    }

    #[test]
    fn models_are_listed_once_in_order() {
        let registry = Registry::new(vec![
            endpoint("a", "http://a")
                .model(Model::new("x"))
                .model(Model::new("y")),
            endpoint("b", "https://b:1/base/")
                .model(Model::new("y"))
                .model(Model::new("w")),
            endpoint("c", "https://[::1]"),
        ])
        .unwrap();
        assert_eq!(registry.models().collect::<Vec<_>>(), ["x", "y", "w"]);
    }

    #[test]
    fn names_must_be_there_and_differ() {
        assert!(
            refusal([endpoint("a", "http://a"), endpoint("", "http://b")]).contains("endpoint 2")
        );
        assert!(refusal([endpoint("a", "http://a"), endpoint("a", "http://b")]).contains("\"a\""));
        let twice = endpoint("a", "http://a")
            .model(Model::new("m"))
            .model(Model::new("m"));
        assert!(refusal([twice]).contains("lists the model \"m\" twice"));
        let empty = endpoint("a", "http://a").model(Model::new("m").context_length(0));
        assert!(refusal([empty]).contains("`context_length` = 0"));
        assert!(
            refusal([endpoint("a", "http://a").model(Model::new(""))]).contains("`name` is empty")
        );
    }

    #[test]
    fn urls_must_be_somewhere_to_send_a_request() {
        for (url, problem) in [
            ("/v1", "http:// or https://"),
            ("ftp://a", "http:// or https://"),
            ("a:80", "http:// or https://"),
            ("http://me:secret@a", "user or a password"),
            ("http://a/?key=1", "query"),
            ("http://a:65536", "port"),
            ("http://[::1]:", "port"),
        ] {
            assert!(refusal([endpoint("a", url)]).contains(problem), "{url}");
        }
    }

    #[test]
    fn reserved_headers_are_refused_by_name() {
        let with = |name| endpoint("a", "http://a").header(name, "secret".parse().unwrap());
        let names = HOP_BY_HOP.map(HeaderName::from_static).into_iter();
        for name in names.chain([HOST, CONTENT_LENGTH]) {
            let said = refusal([with(name.clone())]);
            assert!(
                said.contains(&format!("endpoint \"a\" has a header `{name}`")),
                "{said}"
            );
            assert!(!said.contains("secret"), "{said}");
        }
        assert!(Registry::new(vec![with(http::header::AUTHORIZATION)]).is_ok());
    }

    #[test]
    fn impossible_health_checks_are_refused() {
        let zero = std::time::Duration::ZERO;
        for (check, problem) in [
            (HealthCheck::new("up"), "`path`"),
            (HealthCheck::new("/a b"), "`path`"),
            (HealthCheck::default().interval(zero), "`interval` of 0"),
            (HealthCheck::default().timeout(zero), "`timeout` of 0"),
            (HealthCheck::default().unhealthy_after(0), "at least 1"),
            (HealthCheck::default().healthy_after(0), "at least 1"),
        ] {
            let said = refusal([endpoint("a", "http://a").health(check)]);
            assert!(
                said.contains("endpoint \"a\"") && said.contains(problem),
                "{said}"
            );
        }
        let check = HealthCheck::new("/v1/models?all=1");
        assert!(Registry::new(vec![endpoint("a", "http://a").health(check)]).is_ok());
    }

    #[test]
    fn impossible_engine_metrics_are_refused() {
        let zero = std::time::Duration::ZERO;
        for (load, problem) in [
            (EngineMetrics::new("metrics"), "a path that"),
            (EngineMetrics::default().interval(zero), "an interval of 0"),
        ] {
            let said = refusal([endpoint("a", "http://a").load(load)]);
            assert!(said.contains(problem) && said.contains("`load`"), "{said}");
        }
    }

    #[test]
    fn a_limit_that_makes_no_sense_is_refused() {
        let limit = crate::admit::AdaptiveLimit::default().min(9).max(8);
        let said = refusal([endpoint("a", "http://a").limit(limit)]);
        assert!(said.contains("endpoint \"a\": `limit.max` is 8"), "{said}");
    }
}
