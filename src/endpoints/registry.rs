//! Holds the endpoints of a configuration after they were checked, alone and against each other.

use std::collections::HashSet;

use http::header::{CONTENT_LENGTH, HOST, HeaderName};
use http::uri::Scheme;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    endpoints: Vec<Endpoint>,
}

impl Registry {
    /// Checks each endpoint by itself, and then all endpoints against each other.
    ///
    /// # Errors
    ///
    /// Returns an error if any of these is wrong with an endpoint:
    ///
    /// - Its name is empty, has control characters in it, or belongs to another endpoint, too.
    /// - Its URL is not `http` or `https`, or has more than a host, a port and a path.
    /// - It has 0 slots, or its `limit` has bounds that contradict each other.
    /// - One of its models is listed twice, has a context of 0 tokens, or has a name that cannot be printed.
    /// - One of its headers belongs to a single connection or request, so that the configuration cannot set it.
    /// - Its health check could not be sent or could not decide, or its `load` could not be read.
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
            check(endpoint)?;
        }
        Ok(Self { endpoints })
    }

    /// Returns the endpoints that are started on demand, and a registry of all others.
    pub(crate) fn split_on_demand(&self) -> (Vec<Endpoint>, Self) {
        let endpoints = self.endpoints.iter().cloned();
        let (on_demand, endpoints) = endpoints.partition(Endpoint::is_on_demand);
        (on_demand, Self { endpoints })
    }

    /// Adds endpoints that are started on demand. If a name is taken twice, the endpoint of `on_demand` stays.
    pub(crate) fn with_on_demand(mut self, on_demand: Vec<Endpoint>) -> Self {
        let is_taken = |name: &str| on_demand.iter().any(|other| other.name == name);
        self.endpoints.retain(|endpoint| {
            let is_taken = is_taken(&endpoint.name);
            if is_taken {
                let name = &endpoint.name;
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

/// Checks one endpoint by itself, and returns the first problem.
fn check(config: &Endpoint) -> Result<(), InvalidRegistry> {
    let endpoint = config.name.clone();
    if let Some(problem) = url_problem(config) {
        return Err(InvalidRegistry::BadUrl { endpoint, problem });
    }
    if let Some(Err(problem)) = config.limit.map(|limit| limit.validate()) {
        return Err(InvalidRegistry::BadLimit { endpoint, problem });
    }
    if let Some(problem) = config.health.as_ref().and_then(HealthCheck::problem) {
        return Err(InvalidRegistry::BadHealthCheck { endpoint, problem });
    }
    if let Some(problem) = config.load.as_ref().and_then(EngineMetrics::problem) {
        return Err(InvalidRegistry::BadEngineMetrics { endpoint, problem });
    }
    if let Some(header) = config.headers.keys().find(|name| is_reserved(name)) {
        let header = header.clone();
        return Err(InvalidRegistry::ReservedHeader { endpoint, header });
    }
    let mut models = HashSet::new();
    for Model {
        name,
        context_length,
        ..
    } in &config.models
    {
        if !is_name(name) {
            return Err(InvalidRegistry::BadModelName { endpoint });
        }
        if *context_length == 0 {
            let model = name.clone();
            return Err(InvalidRegistry::NoContext { endpoint, model });
        }
        if !models.insert(name) {
            let model = name.clone();
            return Err(InvalidRegistry::DuplicateModel { endpoint, model });
        }
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_control)
}

/// Returns `true` if the header describes a connection or a body, so that it has to be written anew each time.
fn is_reserved(name: &HeaderName) -> bool {
    is_hop_by_hop(name) || [HOST, CONTENT_LENGTH].contains(name)
}

/// Returns the reason why requests cannot be sent to the endpoint's URL, if there is one.
fn url_problem(endpoint: &Endpoint) -> Option<&'static str> {
    let url = &endpoint.url;
    if url.scheme() != Some(&Scheme::HTTP) && url.scheme() != Some(&Scheme::HTTPS) {
        return Some("must begin with http:// or https://");
    }
    match url.authority() {
        // The message leaves the URL out, because it may hold a password.
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
    /// Requests cannot be sent to the endpoint's URL. The message leaves the URL out, because it may hold a password.
    #[error("the `url` of endpoint {endpoint:?} {problem}")]
    BadUrl {
        /// The name of the endpoint with this URL.
        endpoint: String,
        /// The rule for URLs that this one breaks.
        problem: &'static str,
    },
    /// An endpoint has a `limit` with settings that contradict each other.
    #[error("endpoint {endpoint:?}: {problem}")]
    BadLimit {
        /// The name of the endpoint with this limit.
        endpoint: String,
        /// The key that is invalid, with the values that are allowed.
        problem: InvalidAdaptiveLimit,
    },
    /// An endpoint has a health check that could not be sent, or that could not decide.
    #[error("endpoint {endpoint:?} has a health check with {problem}")]
    BadHealthCheck {
        /// The name of the endpoint with this health check.
        endpoint: String,
        /// The part of the check that is invalid.
        problem: &'static str,
    },
    /// An endpoint has a `load` that could not be read from its engine.
    #[error("endpoint {endpoint:?} has a `load` with {problem}")]
    BadEngineMetrics {
        /// The name of the endpoint with this `load`.
        endpoint: String,
        /// The part of `load` that is invalid.
        problem: &'static str,
    },
    /// An endpoint has a header that has to be written anew for each connection or request.
    #[error(
        "endpoint {endpoint:?} has a header `{header}`, which follows from each connection and request: leave it out"
    )]
    ReservedHeader {
        /// The name of the endpoint with this header.
        endpoint: String,
        /// The name of the header that has to be left out.
        header: HeaderName,
    },
    /// The name of a model is empty, or has control characters in it, so that a header cannot show it.
    #[error(
        "endpoint {endpoint:?} has a model whose `name` is empty or has control characters in it"
    )]
    BadModelName {
        /// The name of the endpoint that lists the model.
        endpoint: String,
    },
    /// A model has a context of 0 tokens, so it could not take a single request.
    #[error(
        "endpoint {endpoint:?} has the model {model:?} with `context_length` = 0: it must be above 0"
    )]
    NoContext {
        /// The name of the endpoint that lists the model.
        endpoint: String,
        /// The name of the model without a context.
        model: String,
    },
    /// An endpoint lists the same model twice.
    #[error("endpoint {endpoint:?} lists the model {model:?} twice: keep one")]
    DuplicateModel {
        /// The name of the endpoint with the list.
        endpoint: String,
        /// The name that appears twice in the list.
        model: String,
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
