//! The builder of a `RouteLayer`.

use std::sync::Arc;

use http::HeaderName;
use http::request::Parts;
use percent_encoding::percent_decode_str;

use super::client_rules::ClientRules;
use super::parsed_request::{DemandSource, extension, named};
use super::shared::RouterShared;
use super::{InvalidRouting, RouteLayer, RoutingConfig};
use crate::admit::Ticket;
use crate::endpoints::{Registry, Requirements, RouteError};
#[cfg(feature = "swap")]
use crate::queue::Overflow;
use crate::queue::{ClassifyContext, InvalidQueueConfig, QueueConfig, RequestHead};

/// A builder of a [`RouteLayer`]. [`RouteLayer::builder`] creates one.
///
/// ```
/// use tower_triage::endpoints::{Endpoint, Model, Registry};
/// use tower_triage::route::RoutingConfig;
/// use tower_triage::{Discipline, QueueConfig, RouteLayer};
///
/// let gpu = Endpoint::new("gpu-1", http::Uri::from_static("http://127.0.0.1:9001"))
///     .max_concurrent(4)
///     .model(Model::new("llama3:8b"));
/// let layer = RouteLayer::builder(Registry::new(vec![gpu])?)
///     .routing(RoutingConfig::default().alias("gpt-4", "llama3:8b"))
///     .queue(QueueConfig::default().discipline(Discipline::Fair))
///     .body_limit(1 << 20)
///     .build();
/// assert_eq!(layer.handle().endpoints()[0].limit(), 4);
/// # Ok::<(), tower_triage::endpoints::InvalidRegistry>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RouteLayerBuilder {
    pub(super) registry: Registry,
    pub(super) queue: QueueConfig,
    pub(super) routing: RoutingConfig,
    pub(super) options: RouteOptions,
}

/// The settings of a router that stay as they were built.
#[derive(Debug, Clone)]
pub(super) struct RouteOptions {
    pub(super) body_limit: usize,
    /// The number of bytes that all request bodies may have together. `None` for any number.
    pub(super) body_memory: Option<usize>,
    pub(super) demand_from: DemandSource,
    pub(super) client_rules: ClientRules,
    /// `true` if responses name their endpoint.
    pub(super) endpoint_header: bool,
    /// `true` if responses name their model.
    pub(super) model_header: bool,
    /// `true` if the inner service is told the wait of each request.
    pub(super) tells_queue_time: bool,
}

const BODY_LIMIT: usize = 10 << 20; // 10 MiB: enough for a chat with images

impl RouteLayerBuilder {
    pub(super) fn new(registry: Registry) -> Self {
        Self {
            registry,
            queue: QueueConfig::default(),
            routing: RoutingConfig::default(),
            options: RouteOptions {
                body_limit: BODY_LIMIT,
                body_memory: None,
                demand_from: DemandSource::Body,
                client_rules: ClientRules::default(),
                endpoint_header: true,
                model_header: true,
                tells_queue_time: false,
            },
        }
    }

    /// Returns the endpoints as they were given to the builder.
    #[cfg(feature = "swap")]
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns `true` if no request may wait.
    #[cfg(feature = "swap")]
    pub(crate) fn sheds(&self) -> bool {
        self.queue.overflow == Overflow::Shed
    }

    /// Sets the aliases, fallbacks, strategy, retries and ejection.
    pub fn routing(mut self, routing: RoutingConfig) -> Self {
        self.routing = routing;
        self
    }

    /// Tells the inner service the wait of each request, by a [`QueueTime`](crate::queue::QueueTime) among the request's
    /// extensions. It is zero if the request found a free slot.
    pub fn queue_time_extension(mut self) -> Self {
        self.options.tells_queue_time = true;
        self
    }

    /// Sets the waiting room for requests that find their endpoints busy. Its `concurrency` has no effect, because each
    /// endpoint has its own limit.
    pub fn queue(mut self, queue: QueueConfig) -> Self {
        self.queue = queue;
        self
    }

    /// Reads tickets with a closure instead of from headers. The [context](ClassifyContext) has the ticket that the
    /// headers say, with the client's deadline.
    ///
    /// Clients can send any header, so a router that verifies its clients takes the tenant and the priority from an
    /// extension, which a layer in front has put there. With [`FairBy::Tokens`](super::FairBy::Tokens) the router
    /// replaces the cost by the tokens of the prompt. The closure runs again before a retry. If it panics, the request
    /// holds neither a slot nor a place.
    ///
    /// ```
    /// use tower_triage::RouteLayer;
    /// use tower_triage::endpoints::Registry;
    ///
    /// /// The claims of a token that a layer in front has verified.
    /// #[derive(Clone)]
    /// struct Claims {
    ///     team: String,
    ///     max_level: String,
    /// }
    ///
    /// let layer = RouteLayer::builder(Registry::new(vec![])?)
    ///     .classify(|request, context| {
    ///         let mut ticket = context.ticket_from_headers(request.headers());
    ///         let claims = request.extensions().get::<Claims>().expect("set by the layer in front");
    ///         ticket.tenant = claims.team.as_str().into();
    ///         ticket.priority = ticket.priority.min(context.priority(&claims.max_level));
    ///         ticket
    ///     })
    ///     .build();
    /// # Ok::<(), tower_triage::endpoints::InvalidRegistry>(())
    /// ```
    pub fn classify(
        mut self,
        classify: impl Fn(&RequestHead<'_>, &ClassifyContext<'_>) -> Ticket + Send + Sync + 'static,
    ) -> Self {
        self.options.client_rules.classify = Some(Arc::new(classify));
        self
    }

    /// Sets the rule for the models that a request may ask for. By default it may ask for any model.
    ///
    /// If `allows` returns `false` for the name in the request, and for the model that this name is an alias of, the
    /// request gets the 404 `model_not_found` of an unknown model. Fallbacks are the choice of the configuration, so
    /// they serve every request that may ask for the first model.
    ///
    /// ```
    /// use tower_triage::RouteLayer;
    /// use tower_triage::endpoints::Registry;
    ///
    /// /// The models that a client may use, which a layer in front has looked up.
    /// #[derive(Clone)]
    /// struct Allowed(Vec<String>);
    ///
    /// let layer = RouteLayer::builder(Registry::new(vec![])?)
    ///     .allow_models(|request, model| {
    ///         let allowed = request.extensions().get::<Allowed>();
    ///         allowed.is_some_and(|Allowed(models)| models.iter().any(|name| name == model))
    ///     })
    ///     .build();
    /// # Ok::<(), tower_triage::endpoints::InvalidRegistry>(())
    /// ```
    pub fn allow_models(
        mut self,
        allows: impl Fn(&RequestHead<'_>, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.options.client_rules.allow_models = Some(Arc::new(allows));
        self
    }

    /// Sets the largest size of a request body in bytes, above which it is rejected with 413. Default 10 MiB.
    ///
    /// A form may be larger if its part `model` comes within so many bytes, because the rest is streamed.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.options.body_limit = bytes;
        self
    }

    /// Sets the number of bytes that all request bodies may have together while they are read, wait, or are kept for a
    /// retry. By default they may have any number.
    ///
    /// A request whose body does not fit is rejected with 503 (`body_memory_full`) and a `Retry-After`. Nothing of its body is
    /// kept, and a body of more than 64 KiB is rejected before more of it is read. A body that is streamed does not count, nor
    /// does a request that brings its [slot](crate::gate::PermitExtension) along. A body whose parameters were changed counts,
    /// even beyond the limit, because its request has its slot.
    pub fn body_memory(mut self, bytes: usize) -> Self {
        self.options.body_memory = Some(bytes);
        self
    }

    /// Sets whether a response names its endpoint in the header `x-triage-endpoint`. It does so by default.
    pub fn endpoint_header(mut self, yes: bool) -> Self {
        self.options.endpoint_header = yes;
        self
    }

    /// Sets whether a response names its model in the header `x-triage-model`. It does so by default.
    pub fn model_header(mut self, yes: bool) -> Self {
        self.options.model_header = yes;
        self
    }

    /// Takes the model's name from a header, so the body is streamed.
    pub fn demand_from_header(self, name: HeaderName) -> Self {
        self.demand_from(move |head| {
            let value = head.headers.get(&name);
            let value = value.and_then(|value| value.to_str().ok());
            named(value, || format!("header `{name}`"))
        })
    }

    /// Takes the model's name from a segment of the path, counted from 0 and percent-decoded, so the body is streamed.
    pub fn demand_from_path_segment(self, index: usize) -> Self {
        self.demand_from(move |head| {
            let mut segments = head.uri.path().trim_start_matches('/').split('/');
            let segment = segments.nth(index).unwrap_or_default();
            let name = percent_decode_str(segment).decode_utf8().ok(); // invalid escapes stay as they are
            named(name.as_deref(), || {
                format!("segment {} of its path", index.saturating_add(1))
            })
        })
    }

    /// Takes the demand from an extension of the request, a `Requirements<'static>`, so the body is streamed.
    ///
    /// Without this, a router takes it from there as well, and reads the bodies of requests that have no such extension.
    pub fn demand_from_extension(self) -> Self {
        self.demand_from(extension)
    }

    /// Takes the demand from the value that `extract` returns for a request's head, so the body is streamed.
    ///
    /// ```
    /// use http::request::Parts;
    /// use tower_triage::RouteLayer;
    /// use tower_triage::endpoints::{Registry, Requirements};
    ///
    /// # let registry = Registry::new(vec![])?;
    /// let layer = RouteLayer::builder(registry)
    ///     .demand_from(|head: &Parts| Ok(Requirements::new(head.uri.path().to_owned())))
    ///     .build();
    /// # Ok::<(), tower_triage::endpoints::InvalidRegistry>(())
    /// ```
    pub fn demand_from(
        mut self,
        extract: impl Fn(&Parts) -> Result<Requirements<'static>, RouteError> + Send + Sync + 'static,
    ) -> Self {
        self.options.demand_from = DemandSource::Head(Arc::new(extract));
        self
    }

    /// Builds the layer.
    ///
    /// # Panics
    ///
    /// If the queue or routing configuration is invalid. Use [`try_build`](Self::try_build) for a configuration that comes
    /// from outside the program.
    #[must_use]
    #[track_caller]
    pub fn build(self) -> RouteLayer {
        match self.try_build() {
            Ok(layer) => layer,
            Err(error) => panic!("{error}"), // in a closure, the location would be this line
        }
    }

    /// Builds the layer, or reports the first invalid setting.
    ///
    /// # Errors
    ///
    /// If the queue or routing configuration is invalid. The error names the field, its value, and the allowed values.
    pub fn try_build(self) -> Result<RouteLayer, InvalidRoute> {
        Ok(RouteLayer(Arc::new(RouterShared::new(self)?)))
    }
}

/// An error in the configuration of a [`RouteLayer`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRoute {
    /// The configuration of the waiting room is invalid.
    #[error("invalid `QueueConfig`: {0}")]
    Queue(#[from] InvalidQueueConfig),
    /// The configuration of the routing is invalid.
    #[error("invalid `RoutingConfig`: {0}")]
    Routing(#[from] InvalidRouting),
}
