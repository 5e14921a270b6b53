//! The classifier of stored requests: the queue of its model, its level and its tenant.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_ENCODING;
use http::request::Parts;
use tower_triage::endpoints::{Registry, Requirements, RouteError};
use tower_triage::queue::InvalidQueueConfig;
use tower_triage::rejection::{Rejection, ToRejection};
use tower_triage::route::{FairBy, RoutingConfig};
use tower_triage::{QueueConfig, RouteHandle};
use tower_triage_durable::{Classified, Classifier, ClassifyHeaders};

use crate::config::Paths;
use crate::service::Handle;
use crate::tenants::Tenants;

/// The levels and tenants of the present configuration.
#[derive(Clone)]
pub(crate) struct Classes(Arc<RwLock<ClassifyHeaders>>);

impl Classes {
    pub(crate) fn new(queue: &QueueConfig) -> Result<Self, InvalidQueueConfig> {
        let classes = ClassifyHeaders::new(queue.classifier()?);
        Ok(Self(Arc::new(RwLock::new(classes))))
    }

    pub(crate) fn replace(&self, queue: &QueueConfig) -> Result<(), InvalidQueueConfig> {
        let classes = ClassifyHeaders::new(queue.classifier()?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = classes;
        Ok(())
    }
}

/// Puts each request into the queue of the model that it asks for, if its tenant may use its model and its path.
#[derive(Clone)]
pub(super) struct ByModel {
    router: RouteHandle,
    classes: Classes,
    tenants: Tenants,
    paths: Paths,
}

impl ByModel {
    pub(super) fn new(handle: &Handle, paths: Paths) -> Self {
        Self {
            router: handle.router().clone(),
            classes: handle.classes().clone(),
            tenants: handle.tenants().clone(),
            paths,
        }
    }

    /// Returns `true` if the tenant of a call may send requests to `path`, if they are stored.
    pub(super) fn serves(&self, head: &Parts, path: &str) -> bool {
        self.paths.allows(path) && self.tenants.may_use_path(&head.headers, path)
    }

    /// Checks the path and the model of a request, which may be a line of a batch.
    fn check(&self, head: &Parts, model: &str, routing: &RoutingConfig) -> Result<(), Rejection> {
        let (headers, path) = (&head.headers, head.uri.path());
        if !self.serves(head, path) {
            let message = format!("requests for {path} may not be stored");
            return Err(Rejection::new(StatusCode::NOT_FOUND, "not_found", message));
        }
        let target = routing.aliases.get(model).map(|alias| &*alias.model);
        let mut names = [Some(model), target].into_iter().flatten();
        match names.any(|name| self.tenants.may_use_model(headers, name)) {
            true => Ok(()),
            false => Err(not_found(model, None).to_rejection()),
        }
    }
}

/// Returns the `Content-Encoding` of a body that is encoded. No run of the request could read it.
fn encoding(head: &Parts) -> Option<String> {
    let values = head.headers.get_all(CONTENT_ENCODING).into_iter();
    let mut encodings = values.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let encoding = encodings.find(|value| {
        let value = value.trim();
        !value.is_empty() && !value.eq_ignore_ascii_case("identity")
    });
    encoding.map(Cow::into_owned)
}

fn not_found(name: &str, alias_of: Option<&String>) -> RouteError {
    RouteError::ModelNotFound {
        model: name.into(),
        alias_of: alias_of.map(|model| model.as_str().into()),
    }
}

impl Classifier for ByModel {
    fn tenant(&self, head: &Parts) -> Vec<u8> {
        let classes = self
            .classes
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        classes.tenant(head)
    }

    fn classify(&self, head: &Parts, body: &Bytes) -> Result<Classified, Rejection> {
        if let Some(encoding) = encoding(head) {
            return Err(RouteError::EncodedBody { encoding }.to_rejection());
        }
        let asked = Requirements::from_json(body).map_err(|error| error.to_rejection())?;
        let routing = self.router.routing();
        self.check(head, &asked.model, &routing)?;
        let model = model(&asked.model, &self.router.registry(), &routing)
            .map_err(|error| error.to_rejection())?;
        let classes = self
            .classes
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let mut classified = classes.classify(head, body)?;
        classified.queue = model.to_owned();
        if routing.fair_by == FairBy::Tokens {
            classified.cost = asked.estimated_tokens.max(1);
        }
        Ok(classified)
    }

    fn level_name(&self, level: u8) -> Option<String> {
        let classes = self.classes.0.read();
        let classes = classes.unwrap_or_else(PoisonError::into_inner);
        classes.level_name(level)
    }
}

/// Returns the model whose queue a request for `name` joins: what the name is an alias of, or itself.
///
/// A gateway without any backend takes all names, as those that run its requests may have them.
fn model<'a>(
    name: &'a str,
    registry: &Registry,
    routing: &'a RoutingConfig,
) -> Result<&'a str, RouteError> {
    let alias_of = routing.aliases.get(name).map(|alias| &alias.model);
    let model = alias_of.map_or(name, String::as_str);
    let fallbacks = routing.fallbacks.get(name);
    let fallbacks = fallbacks.or_else(|| routing.fallbacks.get(model));
    let mut tried = [name, model]
        .into_iter()
        .chain(fallbacks.into_iter().flatten().map(String::as_str));
    let is_served = tried.any(|tried| registry.models().any(|served| served == tried));
    if is_served || registry.endpoints().is_empty() {
        return Ok(model);
    }
    Err(not_found(name, alias_of))
}

#[cfg(test)]
mod tests {
    use tower_triage::endpoints::{Endpoint, Model};

    use super::*;

    #[test]
    fn requests_join_the_queue_of_the_model_that_serves_them() {
        let url = http::Uri::from_static("http://127.0.0.1:9");
        let endpoint = Endpoint::new("gpu", url).model(Model::new("m"));
        let registry = Registry::new(vec![endpoint]).unwrap();
        let routing = RoutingConfig::default()
            .alias("alias", "m")
            .alias("astray", "gone")
            .fallbacks("large", ["m"])
            .fallbacks("lost", ["gone"]);
        for (name, expected) in [
            ("m", Some("m")),
            ("alias", Some("m")),
            ("large", Some("large")),
            ("astray", None),
            ("lost", None),
            ("gpt-5", None),
            ("M", None),
        ] {
            let found = model(name, &registry, &routing);
            assert_eq!(found.ok(), expected, "{name}");
        }
        let none = Registry::new(vec![]).unwrap();
        assert_eq!(model("gpt-5", &none, &routing), Ok("gpt-5"));
        assert_eq!(model("alias", &none, &routing), Ok("m"));
    }
}
