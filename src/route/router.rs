//! What a router is made of.

use super::Registry;
use crate::queue::QueueConfig;

/// Where requests may go, and how they wait for it.
///
/// ```
/// use tower_triage::QueueConfig;
/// use tower_triage::route::{Endpoint, Model, Registry, Router};
///
/// let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"))
///     .max_concurrent(4)
///     .model(Model::new("llama3:8b"));
/// let router = Router::new(Registry::new(vec![gpu])?)
///     .queue(QueueConfig::default().fair())
///     .body_limit(1 << 20);
/// # Ok::<(), tower_triage::route::RegistryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Router {
    pub(super) registry: Registry,
    pub(super) queue: QueueConfig,
    pub(super) body_limit: usize,
}

/// What a chat with images may well take.
const BODY_LIMIT: usize = 10 << 20;

impl Router {
    /// Routes to the endpoints of `registry`; a waiting room by default; bodies of up to 10 MiB.
    #[must_use]
    pub fn new(registry: Registry) -> Self {
        Self {
            registry,
            queue: QueueConfig::default(),
            body_limit: BODY_LIMIT,
        }
    }

    /// How requests wait whose endpoints are busy. Its `concurrency` means nothing here: the endpoints
    /// have their own.
    #[must_use]
    pub fn queue(mut self, queue: QueueConfig) -> Self {
        self.queue = queue;
        self
    }

    /// How many bytes a request's body may have; a longer one gets 413.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }
}
