//! Classifiers, which find the queue, the level and the tenant of a request that is to be stored.

use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;

use tower_triage::queue::HeaderClassifier;
use tower_triage::rejection::Rejection;
use tower_triage::{Priority, QueueConfig};

/// A rule that assigns a queue, a level and a tenant to a request that is to be stored, or rejects the request.
///
/// ```
/// use bytes::Bytes;
/// use http::StatusCode;
/// use http::request::Parts;
/// use tower_triage_durable::{Classified, Classifier};
/// use tower_triage::rejection::Rejection;
///
/// /// One queue for each path, and a tenant for each host.
/// struct ByPath;
///
/// impl Classifier for ByPath {
///     fn tenant(&self, head: &Parts) -> Vec<u8> {
///         head.headers.get("host").map_or(Vec::new(), |host| host.as_bytes().to_vec())
///     }
///
///     fn classify(&self, head: &Parts, _body: &Bytes) -> Result<Classified, Rejection> {
///         match head.uri.path() {
///             path @ ("/images" | "/videos") => Ok(Classified::new(path, 1).cost(4)),
///             _ => Err(Rejection::new(StatusCode::NOT_FOUND, "not_found", "no such path")),
///         }
///     }
/// }
/// ```
pub trait Classifier: Send + Sync + 'static {
    /// Returns the tenant of a request with this head. Apart from operators, only callers of the same tenant can see a
    /// stored request. The head has the extensions of layers in front, so the tenant may be a verified one.
    fn tenant(&self, head: &Parts) -> Vec<u8>;

    /// Returns the queue, the level and the cost of a request that is to be stored.
    ///
    /// # Errors
    ///
    /// Returns the rejection of a request that must not be stored, such as one for an unknown model.
    fn classify(&self, head: &Parts, body: &Bytes) -> Result<Classified, Rejection>;

    /// Returns the name of a level, which pages show beside its index. The default implementation returns `None`.
    fn level_name(&self, level: u8) -> Option<String> {
        _ = level;
        None
    }
}

/// The queue, the level and the cost that a [`Classifier`] assigns to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Classified {
    /// The name of the queue. All requests of one queue ask for the same slots, so it is the name of a model, or empty
    /// for the whole service.
    pub queue: String,
    /// The index of the level, where 0 is the most urgent.
    pub level: u8,
    /// The part of the tenant's share that the request uses, 1 by default.
    pub cost: u32,
}

impl Classified {
    /// Returns a place in a queue at a level, with a cost of 1.
    #[must_use]
    pub fn new(queue: impl Into<String>, level: u8) -> Self {
        Self {
            queue: queue.into(),
            level,
            cost: 1,
        }
    }

    /// Sets the part of the tenant's share that the request uses.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }
}

/// A classifier that reads the level and the tenant from headers, and that uses one queue for the whole service.
#[derive(Debug, Clone)]
pub struct ClassifyHeaders(HeaderClassifier);

impl ClassifyHeaders {
    /// Creates a classifier that uses the same headers as `headers`.
    #[must_use]
    pub fn new(headers: HeaderClassifier) -> Self {
        Self(headers)
    }
}

impl Default for ClassifyHeaders {
    /// Returns the classifier of a queue's default configuration, which reads `x-priority` and `x-tenant-id`.
    fn default() -> Self {
        let classifier = QueueConfig::default().classifier();
        Self(classifier.unwrap_or_else(|_| unreachable!("the default configuration is valid")))
    }
}

impl Classifier for ClassifyHeaders {
    fn tenant(&self, head: &Parts) -> Vec<u8> {
        let ticket = self.0.ticket(&head.headers, Instant::now());
        ticket.tenant.as_bytes().to_vec()
    }

    fn classify(&self, head: &Parts, _body: &Bytes) -> Result<Classified, Rejection> {
        Ok(Classified::new("", self.0.priority(&head.headers).0))
    }

    fn level_name(&self, level: u8) -> Option<String> {
        Some(self.0.levels().name(Priority(level)).to_owned())
    }
}
