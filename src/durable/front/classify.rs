//! Classifiers: which queue a stored request belongs to, at which level, and whose it is.

use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;

use crate::queue::HeaderClassifier;
use crate::rejection::Rejection;
use crate::{Priority, QueueConfig};

/// Assigns a queue, a level and a tenant to a request that is to be stored, or rejects it.
///
/// ```
/// use bytes::Bytes;
/// use http::StatusCode;
/// use http::request::Parts;
/// use tower_triage::durable::{Classified, Classifier};
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
    /// Returns the tenant of a request with this head. A stored request is seen by its tenant alone.
    fn tenant(&self, head: &Parts) -> Vec<u8>;

    /// Returns the place of a request among the stored ones.
    ///
    /// # Errors
    ///
    /// The rejection of a request that is not stored, such as one for an unknown model.
    fn classify(&self, head: &Parts, body: &Bytes) -> Result<Classified, Rejection>;

    /// Returns the name of a level, which pages show beside its index. Default: none.
    fn level_name(&self, level: u8) -> Option<String> {
        _ = level;
        None
    }
}

/// The place of a request among the stored ones.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Classified {
    /// The queue: requests of one queue ask for the same slots. A model's name, or empty for the whole service.
    pub queue: String,
    /// The index of the level: 0 is the most urgent.
    pub level: u8,
    /// The part of its tenant's share that it uses. Default 1.
    pub cost: u32,
}

impl Classified {
    /// Returns the place in a queue, at a level.
    #[must_use]
    pub fn new(queue: impl Into<String>, level: u8) -> Self {
        Self {
            queue: queue.into(),
            level,
            cost: 1,
        }
    }

    /// Sets the part of its tenant's share that it uses.
    #[must_use]
    pub fn cost(mut self, cost: u32) -> Self {
        self.cost = cost;
        self
    }
}

/// A classifier that reads level and tenant from headers, and has one queue for the whole service.
#[derive(Debug, Clone)]
pub struct ClassifyHeaders(HeaderClassifier);

impl ClassifyHeaders {
    /// Makes a classifier that reads the headers as this one does.
    #[must_use]
    pub fn new(headers: HeaderClassifier) -> Self {
        Self(headers)
    }
}

impl Default for ClassifyHeaders {
    /// Returns the classifier of a queue's default configuration: `x-priority` and `x-tenant-id`.
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
