//! What a router is made of.

use http::HeaderName;
use http::request::Parts;

use super::source::Source;
use super::{Registry, Requirements, RouteError, RoutingConfig};
use crate::queue::QueueConfig;

/// Where requests may go, and how they wait for it.
///
/// ```
/// use tower_triage::{Discipline, QueueConfig};
/// use tower_triage::route::{Endpoint, Model, Registry, Router};
///
/// let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"))
///     .max_concurrent(4)
///     .model(Model::new("llama3:8b"));
/// let router = Router::new(Registry::new(vec![gpu])?)
///     .queue(QueueConfig::default().discipline(Discipline::Fair))
///     .body_limit(1 << 20);
/// # Ok::<(), tower_triage::route::InvalidRegistry>(())
/// ```
#[derive(Debug, Clone)]
pub struct Router {
    pub(super) registry: Registry,
    pub(super) queue: QueueConfig,
    pub(super) routing: RoutingConfig,
    pub(super) body_limit: usize,
    pub(super) source: Source,
    pub(super) stamps: Stamps,
}

/// Which headers say where an answer is from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamps {
    pub(super) endpoint: bool,
    pub(super) model: bool,
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
            routing: RoutingConfig::default(),
            body_limit: BODY_LIMIT,
            source: Source::Body,
            stamps: Stamps {
                endpoint: true,
                model: true,
            },
        }
    }

    /// Whether `x-triage-endpoint` tells callers which endpoint answered. Default `true`.
    #[must_use]
    pub fn endpoint_header(mut self, yes: bool) -> Self {
        self.stamps.endpoint = yes;
        self
    }

    /// Whether `x-triage-model` tells callers which model answered. Default `true`.
    #[must_use]
    pub fn model_header(mut self, yes: bool) -> Self {
        self.stamps.model = yes;
        self
    }

    /// Who serves which name, which of the endpoints, and what happens when one fails.
    #[must_use]
    pub fn routing(mut self, routing: RoutingConfig) -> Self {
        self.routing = routing;
        self
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

    /// The value of this header says what a request asks for, instead of its body, which is then passed on as
    /// it comes.
    #[must_use]
    pub fn by_header(mut self, name: HeaderName) -> Self {
        self.source = Source::header(name);
        self
    }

    /// A segment of the path, counted from 0, says what a request asks for, instead of its body, which is then
    /// passed on as it comes.
    #[must_use]
    pub fn by_path_segment(mut self, index: usize) -> Self {
        self.source = Source::path_segment(index);
        self
    }

    /// An extension of the request, a `Requirements<'static>`, says what it asks for, instead of its body, which
    /// is then passed on as it comes.
    #[must_use]
    pub fn by_extension(mut self) -> Self {
        self.source = Source::extension();
        self
    }

    /// `read` says what a request asks for, from its head, instead of its body, which is then passed on as it
    /// comes.
    #[must_use]
    pub fn by(
        mut self,
        read: impl Fn(&Parts) -> Result<Requirements<'static>, RouteError> + Send + Sync + 'static,
    ) -> Self {
        self.source = Source::head(read);
        self
    }
}
